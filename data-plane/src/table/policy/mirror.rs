//! Who gets copies of requests (ingress-nginx behaviour, annotations.md 6.15).

use shared::policy::LocationPolicy;
use shared::template::Template;

/// Who gets a copy of each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// A URL once it is filled in.
    pub target: Template,
    /// Whether a path of the URL is the same for all, so that the query is still to be added.
    pub is_fixed: bool,
    /// Whether copies have the body.
    pub with_body: bool,
    /// `Host` of copies; else that of the URL.
    pub host: Option<Template>,
}

impl Mirror {
    pub(super) fn compile(said: &LocationPolicy) -> Option<Box<Self>> {
        let target = said.mirror_target.as_deref().filter(|target| !target.is_empty())?;
        let target = Template::parse(target);
        Some(Box::new(Self {
            is_fixed: target.as_literal().is_some(),
            target,
            with_body: said.mirror_request_body != Some(false),
            host: said.mirror_host.as_deref().map(Template::parse),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_where_there_is_a_target() {
        let said = |target: &str, body| LocationPolicy {
            mirror_target: Some(target.into()),
            mirror_request_body: body,
            ..LocationPolicy::default()
        };
        assert_eq!(Mirror::compile(&LocationPolicy::default()), None);
        assert_eq!(Mirror::compile(&said("", None)), None);
        let mirror = Mirror::compile(&said("http://a.test", None)).unwrap();
        assert!(mirror.is_fixed && mirror.with_body);
        let mirror = Mirror::compile(&said("http://a.test$request_uri", Some(false))).unwrap();
        assert!(!mirror.is_fixed && !mirror.with_body);
    }
}
