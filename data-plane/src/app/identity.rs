//! The identity that this process reports.

use std::env;
use std::path::{Path, PathBuf};

use shared::identity;
use shared::tls::join::JoinToken;

use crate::metrics::Labels;
use crate::subscribe::certificate::{Enrolment, Proof};
use crate::subscribe::session::Identity;

/// Maximum length of a name in the stream, in bytes.
const LONGEST: usize = 253;
/// Length of the suffix, with its hyphen, that distinguishes processes of the same name.
const SUFFIX: usize = 17;

/// The identity of a new process: pod or host name and 64 random bits.
pub(super) fn of_process(node: Option<String>, zone: String, group: String) -> Identity {
    let host = host_name();
    let pod = env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    // It also appears in the certificate.
    let name = match identity::fit(pod.as_deref().unwrap_or(&host)) {
        name if name.is_empty() => "unknown".to_owned(),
        name => name.chars().take(LONGEST - SUFFIX).collect(),
    };
    let node = node.or_else(|| env::var("NODE_NAME").ok()).filter(|name| !name.is_empty());
    Identity {
        proxy_id: format!("{name}-{:016x}", fastrand::u64(..)),
        node: fit(node.as_deref().unwrap_or(&host), LONGEST),
        zone: fit(&zone, LONGEST),
        group,
    }
}

/// The pod's namespace and name, as in ingress-nginx' metrics.
pub(super) fn labels() -> Labels {
    let variable = |name| env::var(name).ok().filter(|text| !text.is_empty());
    Labels {
        namespace: variable("POD_NAMESPACE").unwrap_or_else(|| "default".to_owned()),
        pod: variable("POD_NAME").unwrap_or_else(host_name),
    }
}

/// The proof of identity: a join token, or files with the service account token and with the roots to verify the
/// server by.
pub(super) fn proof(join: Option<JoinToken>, files: Option<(PathBuf, PathBuf)>) -> Option<Proof> {
    let account = files.map(|(token, roots)| Proof::Account { token, roots });
    join.map(Proof::Join).or(account)
}

/// How it obtains the certificate with its name. A proxy that can always request another one keeps it in memory, if
/// there is a folder for that; a join token can be used only once.
pub(super) fn enrolment(
    identity: &Identity,
    proof: Option<Proof>,
    state_dir: Option<&Path>,
    key_dir: Option<&Path>,
) -> Enrolment {
    let in_memory = key_dir.filter(|_| matches!(proof, Some(Proof::Account { .. })));
    let dir = in_memory.or(state_dir);
    Enrolment {
        proof,
        group: identity.group.clone(),
        name: identity.proxy_id[..identity.proxy_id.len() - SUFFIX].to_owned(),
        folder: dir.map(|dir| dir.join("identity")),
    }
}

fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| env::var("HOSTNAME").ok()).unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

/// The characters of a name that the stream allows: printable ASCII without spaces.
fn fit(name: &str, longest: usize) -> String {
    name.chars().filter(char::is_ascii_graphic).take(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_is_another() {
        let made = || of_process(Some("node-1".into()), "a".into(), "default".into());
        let (one, two) = (made(), made());
        assert_ne!(one.proxy_id, two.proxy_id);
        assert_eq!(one.node, "node-1");
        assert!(one.proxy_id.len() <= LONGEST);
        let enrolment = enrolment(&one, None, None, None);
        let named = identity::Identity::new("default", identity::Role::Proxy, &enrolment.name).unwrap();
        assert!(named.covers_proxy(&one.proxy_id), "{named} and {}", one.proxy_id);
    }

    #[test]
    fn names_fit() {
        assert_eq!(fit("a b\u{e9}\nc", 10), "abc");
        assert_eq!(fit(&"x".repeat(400), LONGEST).len(), LONGEST);
    }
}
