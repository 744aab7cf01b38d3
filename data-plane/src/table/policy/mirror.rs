//! Mirror targets that get copies of requests (as in ingress-nginx).

use shared::policy::LocationPolicy;
use shared::template::Template;

/// The mirror target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// A template for its URL.
    pub target: Template,
    /// Whether the URL's path is fixed, so that the query has to be appended.
    pub is_fixed: bool,
    /// Whether copies have the request body.
    pub with_body: bool,
    /// The `Host` of copies; by default that of the URL.
    pub host: Option<Template>,
}

impl Mirror {
    pub(super) fn compile(configured: &LocationPolicy) -> Option<Box<Self>> {
        let target = configured.mirror_target.as_deref().filter(|target| !target.is_empty())?;
        let target = Template::parse(target);
        Some(Box::new(Self {
            is_fixed: target.as_literal().is_some(),
            target,
            with_body: configured.mirror_request_body != Some(false),
            host: configured.mirror_host.as_deref().map(Template::parse),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_where_there_is_a_target() {
        let configured = |target: &str, body| LocationPolicy {
            mirror_target: Some(target.into()),
            mirror_request_body: body,
            ..LocationPolicy::default()
        };
        assert_eq!(Mirror::compile(&LocationPolicy::default()), None);
        assert_eq!(Mirror::compile(&configured("", None)), None);
        let mirror = Mirror::compile(&configured("http://a.test", None)).unwrap();
        assert!(mirror.is_fixed && mirror.with_body);
        let mirror = Mirror::compile(&configured("http://a.test$request_uri", Some(false))).unwrap();
        assert!(!mirror.is_fixed && !mirror.with_body);
    }
}
