//! Session affinity settings (as in ingress-nginx).

use shared::policy::{Affinity, AffinityMode, BackendPolicy, SameSite as ConfiguredSameSite};

use super::PolicyError;
use crate::affinity::{Attributes, SameSite};

/// The affinity rules, independent of the backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Whether clients move to new endpoints.
    pub mode: AffinityMode,
    /// Whether a client gets another endpoint when its own fails.
    pub change_on_failure: bool,
    /// The cookie's attributes.
    pub attributes: Attributes,
}

impl Rules {
    /// Compiles the policy.
    ///
    /// # Errors
    /// A text would terminate its attribute or its header line.
    pub fn compile(configured: &Affinity) -> Result<Self, PolicyError> {
        let texts = [
            ("affinity.name", Some(&configured.name)),
            ("affinity.path", configured.path.as_ref()),
            ("affinity.domain", configured.domain.as_ref()),
        ];
        for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
            if !text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b';') {
                let problem = format!("expected printable ASCII without a semicolon, got {text:?}");
                return Err(PolicyError { field, problem });
            }
        }
        Ok(Self {
            mode: configured.mode(),
            change_on_failure: configured.change_on_failure,
            attributes: Attributes {
                name: configured.name.clone(),
                path: configured.path.clone(),
                domain: configured.domain.clone(),
                expires: configured.expires,
                max_age: configured.max_age,
                secure: configured.secure,
                same_site: match configured.same_site() {
                    ConfiguredSameSite::Unspecified => None,
                    ConfiguredSameSite::None => Some(SameSite::None),
                    ConfiguredSameSite::Lax => Some(SameSite::Lax),
                    ConfiguredSameSite::Strict => Some(SameSite::Strict),
                },
                conditional_none: configured.conditional_none,
            },
        })
    }

    /// Checks that the policy of a backend is supported.
    ///
    /// # Errors
    /// It is not supported.
    pub fn check(configured: &BackendPolicy) -> Result<(), PolicyError> {
        configured.affinity.as_ref().map_or(Ok(()), |configured| Self::compile(configured).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_inside_its_attribute() {
        for text in ["a\r\nSet-Cookie: x=y", "a; Domain=b", "ä"] {
            let configured = Affinity { name: "c".into(), path: Some(text.into()), ..Affinity::default() };
            assert_eq!(Rules::compile(&configured).unwrap_err().field, "affinity.path", "{text:?}");
            let policy = BackendPolicy { affinity: Some(configured), ..BackendPolicy::default() };
            assert!(Rules::check(&policy).is_err());
        }
        assert_eq!(Rules::check(&BackendPolicy::default()), Ok(()));
    }
}
