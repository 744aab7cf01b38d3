//! Session affinity settings (as in ingress-nginx).

use shared::policy::{Affinity, AffinityMode, BackendPolicy, SameSite as ConfiguredSameSite};

use super::Refused;
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
    pub fn compile(said: &Affinity) -> Result<Self, Refused> {
        let texts = [
            ("affinity.name", Some(&said.name)),
            ("affinity.path", said.path.as_ref()),
            ("affinity.domain", said.domain.as_ref()),
        ];
        for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
            if !text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b';') {
                let problem = format!("expected printable ASCII without a semicolon, got {text:?}");
                return Err(Refused { field, problem });
            }
        }
        Ok(Self {
            mode: said.mode(),
            change_on_failure: said.change_on_failure,
            attributes: Attributes {
                name: said.name.clone(),
                path: said.path.clone(),
                domain: said.domain.clone(),
                expires: said.expires,
                max_age: said.max_age,
                secure: said.secure,
                same_site: match said.same_site() {
                    ConfiguredSameSite::Unspecified => None,
                    ConfiguredSameSite::None => Some(SameSite::None),
                    ConfiguredSameSite::Lax => Some(SameSite::Lax),
                    ConfiguredSameSite::Strict => Some(SameSite::Strict),
                },
                conditional_none: said.conditional_none,
            },
        })
    }

    /// Checks that the policy of a backend is supported.
    ///
    /// # Errors
    /// It is not supported.
    pub fn check(said: &BackendPolicy) -> Result<(), Refused> {
        said.affinity.as_ref().map_or(Ok(()), |said| Self::compile(said).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_inside_its_attribute() {
        for text in ["a\r\nSet-Cookie: x=y", "a; Domain=b", "ä"] {
            let said = Affinity { name: "c".into(), path: Some(text.into()), ..Affinity::default() };
            assert_eq!(Rules::compile(&said).unwrap_err().field, "affinity.path", "{text:?}");
            let policy = BackendPolicy { affinity: Some(said), ..BackendPolicy::default() };
            assert!(Rules::check(&policy).is_err());
        }
        assert_eq!(Rules::check(&BackendPolicy::default()), Ok(()));
    }
}
