//! Which role may call which method.
//!
//! **Invariant:** methods that are not listed here are for operators only. So a new method that is forgotten here is
//! closed to all others, and a test that reads the descriptors fails until it is listed.

use shared::identity::Role;

/// The stream of proxies.
const STREAM: &str = "/firth.config.v1.ConfigStream/";
/// Queries and commands.
const INSPECT: &str = "/firth.inspect.v1.Inspect/";
/// Queries between replicas.
const SHARE: &str = "/firth.inspect.v1.Inspect/Share";
/// Renewal of certificates.
const RENEW: &str = "/firth.identity.v1.Identity/Renew";
/// The trusted roots: public, like all certificates.
const AUTHORITY: &str = "/firth.identity.v1.Identity/GetAuthority";
/// Reflection: the same for everybody, and in the repository.
const REFLECTION: &str = "/grpc.reflection.";

/// Methods of [`INSPECT`] that change nothing.
const QUESTIONS: &[&str] = &[
    "ListProxies",
    "WatchProxies",
    "Status",
    "WatchStatus",
    "ListResources",
    "GetResource",
    "History",
    "Diff",
    "WatchChanges",
    "ListProblems",
];

/// Whether a role may call the method at this path.
pub(super) fn allowed(role: Role, path: &str) -> bool {
    let is_question =
        path == AUTHORITY || path.strip_prefix(INSPECT).is_some_and(|method| QUESTIONS.contains(&method));
    match role {
        Role::Proxy => path.starts_with(STREAM) || path == RENEW,
        Role::Reader => is_question || path.starts_with(REFLECTION),
        // Not the stream: operators have no need for private keys.
        Role::Operator => !path.starts_with(STREAM) && path != RENEW,
        // A replica needs no other method.
        Role::ControlPlane => path == SHARE,
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use shared::proto::DESCRIPTORS;

    use super::*;

    /// Methods that change what is served, or which roots are trusted.
    const COMMANDS: &[&str] = &[
        "/firth.identity.v1.Identity/RotateAuthority",
        "/firth.inspect.v1.Inspect/Pin",
        "/firth.inspect.v1.Inspect/Rollback",
        "/firth.inspect.v1.Inspect/Unpin",
    ];

    #[test]
    fn every_method_is_somebody_s_on_purpose() {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        let mut count = 0;
        for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            count += 1;
            let may: Vec<Role> = Role::ALL.into_iter().filter(|role| allowed(*role, &path)).collect();
            let expected: &[Role] = if path.starts_with(STREAM) || path == RENEW {
                &[Role::Proxy]
            } else if path == SHARE {
                &[Role::ControlPlane, Role::Operator]
            } else if COMMANDS.contains(&path.as_str()) || path.contains(".Enrolment/") {
                // Enrolment is served only where no role is required.
                &[Role::Operator]
            } else {
                &[Role::Reader, Role::Operator]
            };
            assert_eq!(may, expected, "{path}: list it among QUESTIONS, or among the COMMANDS of this test");
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn what_is_not_known_is_an_operator_s() {
        for path in [
            "/firth.inspect.v1.Inspect/Listen",
            "/firth.inspect.v1.Inspect/ListProxies/",
            "/other.Service/Any",
            "",
        ] {
            let may: Vec<Role> = Role::ALL.into_iter().filter(|role| allowed(*role, path)).collect();
            assert_eq!(may, [Role::Operator], "{path}");
        }
    }
}
