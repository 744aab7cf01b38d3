//! Compiles Secrets for uses other than certificates of hosts: users with their password hashes or digests, and trusted
//! authorities.
//!
//! **Invariant:** no content of a Secret gets into a fault.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::htpasswd;
use shared::resource::{Material, User};

use super::{size, trust};
use crate::objects::Secret;
use crate::problem::{Fault, Severity};
use crate::reference::Use;

/// The Secret's key with the htpasswd lines.
const FILE: &str = "auth";

/// Bytes of a Secret up to which it is read to tell its Ingresses that nobody can log in with it.
const JUDGED: usize = 16 * 1024;

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

/// Why nobody can log in with a Secret of users that can be used, if so: no entry has a hash that a password can match.
/// A large one, whose owner has users, is not read for that: each Ingress that names it would pay for it.
pub fn shuts_out_all(secret: &Secret, what: Use) -> Option<String> {
    if secret.data.values().map(|it| it.len()).sum::<usize>() > JUDGED {
        return None;
    }
    let Ok(users) = users(secret, what) else { return None };
    let (is_digest, is_map) = match what {
        Use::UsersFile => (false, false),
        Use::UsersMap => (false, true),
        Use::DigestsFile => (true, false),
        Use::DigestsMap => (true, true),
        _ => return None,
    };
    let fits = |user: &User| match is_digest {
        true => htpasswd::is_digest(&user.hash),
        false => htpasswd::Kind::of(&user.hash).is_some(),
    };
    if users.iter().any(fits) {
        return None;
    }
    let (count, what, expected) = match (is_map, is_digest) {
        (false, false) => (lines(secret), "line", "NAME:HASH, as htpasswd writes it"),
        (false, true) => (lines(secret), "line", "NAME:REALM:DIGEST, as htdigest writes it"),
        (true, false) => (secret.data.len(), "key", "a hash, as htpasswd writes it behind the name"),
        (true, true) => (secret.data.len(), "key", "REALM:DIGEST, as htdigest writes it behind the name"),
    };
    let place = if is_map { "" } else { " under its key auth" };
    Some(match count {
        0 => format!("has no {what}{place}"),
        1 => format!("has one {what}{place}, which is not {expected}"),
        count => format!("has {count} {what}s{place}, none of which is {expected}"),
    })
}

/// Number of the lines that are neither empty nor comments.
fn lines(secret: &Secret) -> usize {
    let file = secret.data.get(FILE).and_then(|text| decoded(FILE, text).ok()).unwrap_or_default();
    let is_blank = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    file.split(|byte| *byte == b'\n').filter(|line| !is_blank(line)).count()
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
    fn who_has_no_password_that_can_match_is_told() {
        let file = |lines: &str| shuts_out_all(&secret(&[("auth", lines)]), Use::UsersFile);
        for (lines, said) in [
            ("", "has no line under its key auth"),
            ("# a comment\n\n", "has no line under its key auth"),
            (
                "admin hunter2\n",
                "has one line under its key auth, which is not NAME:HASH, as htpasswd writes it",
            ),
            (
                "admin:hunter2\nann:$9$x\n#",
                "has 2 lines under its key auth, none of which is NAME:HASH, as htpasswd writes it",
            ),
        ] {
            assert_eq!(file(lines).as_deref(), Some(said));
        }
        for lines in ["ann:$apr1$x$y", "admin:hunter2\nann:{SHA}x", "ann:{PLAIN}x", "ann:ab01FAX.bQRSU"] {
            assert_eq!(file(lines), None, "{lines}");
        }
        let map = |hash: &str, what| shuts_out_all(&secret(&[("ann", hash)]), what);
        assert!(map("hunter2", Use::UsersMap).unwrap().starts_with("has one key, which is not a hash"));
        assert_eq!(map("$apr1$x$y", Use::UsersMap), None);
        assert!(map("area:hunter2", Use::DigestsMap).unwrap().contains("htdigest"));
        assert_eq!(map(&format!("area:{}", "0f".repeat(16)), Use::DigestsMap), None);
        assert!(shuts_out_all(&secret(&[("auth", "ann:$apr1$x$y")]), Use::DigestsFile).is_some());
        assert_eq!(shuts_out_all(&secret(&[("ca.crt", "x")]), Use::ClientAuthorities), None);
    }

    #[test]
    fn hashes_are_not_shown() {
        let material = compile(&secret(&[("auth", "ann:hunter2")]), Use::UsersFile).unwrap();
        assert!(!format!("{material:?}").contains("hunter2"));
    }
}
