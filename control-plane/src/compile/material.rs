//! Compiles Secrets for uses other than certificates of hosts: users with their password hashes or digests, and trusted
//! authorities.
//!
//! **Invariant:** no content of a Secret gets into a fault.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::resource::{Material, User};

use super::{size, trust};
use crate::objects::Secret;
use crate::problem::{Fault, Severity};
use crate::reference::Use;

/// The Secret's key with the htpasswd lines.
const FILE: &str = "auth";

/// Compiles a Secret for a use.
///
/// As in ingress-nginx, a line or value that is no hash only denies its user.
///
/// # Errors
/// If the Secret cannot be used. Then there is no last good version: a user that was removed stays removed.
pub fn compile(secret: &Secret, what: Use) -> Result<Material, Fault> {
    if let Some(fault) = size::of_data(&secret.data) {
        return Err(fault);
    }
    match what {
        Use::ClientAuthorities => trust::of_clients(secret).map(Material::Authorities),
        Use::BackendTls => trust::identity(secret).map(Material::BackendIdentity),
        _ => users(secret, what).map(Material::Users),
    }
}

fn users(secret: &Secret, what: Use) -> Result<Vec<User>, Fault> {
    let mut seen = HashSet::new();
    let mut users = Vec::new();
    let digests = matches!(what, Use::DigestsFile | Use::DigestsMap);
    let mut add = |name: &str, rest: &str| {
        // A digest is for a name in a realm (htdigest); the same name in another realm is another user.
        let (name, rest) = match rest.split_once(':') {
            _ if name.is_empty() => return,
            Some((realm, rest)) if digests => (format!("{name}:{realm}"), rest),
            None if digests => return,
            _ => (name.to_owned(), rest),
        };
        // What follows a second colon, or a line break, is not part of the hash (nginx' auth_basic_user_file).
        let hash = rest.split([':', '\r', '\n']).next().unwrap_or_default();
        if seen.insert(name.clone()) {
            users.push(User { name, hash: hash.to_owned() });
        }
    };
    if matches!(what, Use::UsersMap | Use::DigestsMap) {
        for (name, text) in &secret.data {
            // A name that is not text, or has a colon, can never be sent by a client.
            if let Ok(hash) = String::from_utf8(decoded(name, text)?)
                && !name.contains(':')
            {
                add(name, &hash);
            }
        }
    } else {
        let text = secret
            .data
            .get(FILE)
            .ok_or_else(|| rejected(FILE, "expected htpasswd lines, got no such key"))?;
        let file = decoded(FILE, text)?;
        let lines = file.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        for line in lines.filter(|line| !line.starts_with('#')) {
            if let Some((name, rest)) = line.split_once(':') {
                add(name, rest);
            }
        }
    }
    Ok(users)
}

fn decoded(key: &str, text: &str) -> Result<Vec<u8>, Fault> {
    // Manifests break long lines.
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).map_err(|_| rejected(key, "expected base64"))
}

fn rejected(key: &str, reason: &str) -> Fault {
    Fault::new(Severity::Rejected, format!("data[{key}]"), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text))).collect();
        Secret { metadata: crate::objects::Metadata::default(), data }
    }

    fn users(secret: &Secret, what: Use) -> Vec<(String, String)> {
        let Material::Users(users) = compile(secret, what).unwrap() else { panic!("users alone") };
        users.into_iter().map(|user| (user.name, user.hash)).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
    }

    #[test]
    fn lines_of_a_file() {
        let file = "ann:$apr1$x$y\r\n# note: this\n\nbob:{SHA}z:Bob the Builder\nno colon\n:nobody\nann:later\nempty:\n";
        assert_eq!(
            users(&secret(&[("auth", file), ("other", "x:y")]), Use::UsersFile),
            pairs(&[("ann", "$apr1$x$y"), ("bob", "{SHA}z"), ("empty", "")])
        );
        assert_eq!(users(&secret(&[("auth", "")]), Use::UsersFile), []);
    }

    #[test]
    fn keys_of_a_map() {
        assert_eq!(
            users(
                &secret(&[
                    ("bob", "{SHA}z\n"),
                    ("ann", "$2y$x\nroot:{PLAIN}evil"),
                    ("a:b", "{SHA}z"),
                    ("", "{SHA}z")
                ]),
                Use::UsersMap
            ),
            pairs(&[("ann", "$2y$x"), ("bob", "{SHA}z")])
        );
    }

    #[test]
    fn digests_are_of_a_name_in_a_realm() {
        let file = "ann:Test area:0f\r\n# note\nann:other:1e\nbob:hash\n:Test area:2d\nann:other:later\n";
        assert_eq!(
            users(&secret(&[("auth", file)]), Use::DigestsFile),
            pairs(&[("ann:Test area", "0f"), ("ann:other", "1e")])
        );
        assert_eq!(
            users(&secret(&[("ann", "Test area:0f\n"), ("bob", "{SHA}z")]), Use::DigestsMap),
            pairs(&[("ann:Test area", "0f")])
        );
    }

    #[test]
    fn what_is_missing_is_told_without_a_word_of_the_rest() {
        let fault = compile(&secret(&[("users", "ann:hunter2")]), Use::UsersFile).unwrap_err();
        assert_eq!((fault.field.as_str(), fault.severity), ("data[auth]", Severity::Rejected));
        assert!(!fault.reason.contains("hunter2"));
        let mut broken = secret(&[]);
        broken.data.insert("ann".into(), "%%%".into());
        assert_eq!(compile(&broken, Use::UsersMap).unwrap_err().field, "data[ann]");
    }

    #[test]
    fn hashes_are_not_shown() {
        let material = compile(&secret(&[("auth", "ann:hunter2")]), Use::UsersFile).unwrap();
        assert!(!format!("{material:?}").contains("hunter2"));
    }
}
