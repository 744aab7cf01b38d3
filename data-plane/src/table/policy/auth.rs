//! Password authentication: where it is required, and what is sufficient for access (as in ingress-nginx).

use bytes::Bytes;
use shared::policy::{BasicAuth, LocationPolicy};

use super::PolicyError;
use super::spared::Spared;

/// The required authentication.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Auth {
    /// Users and passwords; `None`: not required.
    pub basic: Option<Basic>,
    /// One of address lists, passwords and external authentication is sufficient.
    pub satisfy_any: bool,
    /// Locations that need no authentication.
    pub exempt: Spared,
}

/// Password authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Basic {
    /// Key of the Material with the users.
    pub users: Box<str>,
    /// The `WWW-Authenticate` header; for digest authentication the part before the nonce.
    pub challenge: Bytes,
    /// The realm of digest authentication; `None`: basic authentication.
    pub realm: Option<Box<str>>,
}

impl Auth {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        Ok(Self {
            basic: configured.basic_auth.as_ref().map(Basic::compile).transpose()?,
            satisfy_any: configured.satisfy_any.unwrap_or_default(),
            exempt: Spared::compile(configured.no_auth_locations.as_ref()),
        })
    }
}

impl Basic {
    fn compile(configured: &BasicAuth) -> Result<Self, PolicyError> {
        let BasicAuth { users, realm, digest } = configured;
        let refused = |field, problem: &str| Err(PolicyError { field, problem: problem.to_owned() });
        if users.is_empty() {
            return refused("basic_auth.users", "expected the key of a Material, got none");
        }
        if realm.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
            return refused(
                "basic_auth.realm",
                "expected text without quotes, backslashes and control characters",
            );
        }
        // In nginx the realm `off` disables authentication; here it is just a realm.
        let challenge = if *digest {
            format!("Digest algorithm=MD5, qop=\"auth\", realm=\"{realm}\", nonce=\"")
        } else {
            format!("Basic realm=\"{realm}\"")
        };
        let realm = digest.then(|| realm.as_str().into());
        Ok(Self { users: users.as_str().into(), challenge: challenge.into(), realm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(users: &str, realm: &str) -> Result<Auth, PolicyError> {
        let basic_auth = Some(BasicAuth { users: users.into(), realm: realm.into(), ..BasicAuth::default() });
        Auth::compile(&LocationPolicy { basic_auth, ..LocationPolicy::default() })
    }

    #[test]
    fn a_realm_is_text_whatever_it_says() {
        for (realm, challenge) in [
            ("Test area", "Basic realm=\"Test area\""),
            ("", "Basic realm=\"\""),
            ("off", "Basic realm=\"off\""),
        ] {
            assert_eq!(basic("ns/users/auth-file", realm).unwrap().basic.unwrap().challenge, challenge);
        }
        for realm in ["a\"b", "a\\", "a\r\nX: y"] {
            assert_eq!(basic("ns/users/auth-file", realm).unwrap_err().field, "basic_auth.realm");
        }
        assert_eq!(basic("", "x").unwrap_err().field, "basic_auth.users");
    }
}
