//! Names in comparable form: hosts and namespaced objects.

use std::fmt;
use std::sync::Arc;

use crate::resource::CATCH_ALL;

/// Namespace and name of an object. Ordered by namespace, then name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Empty for objects of the whole cluster.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl ObjectName {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Parses `namespace/name`; `None` unless both are there.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then(|| Self::new(namespace, name))
    }

    /// Whether an object can have this name: an RFC 1123 subdomain in a namespace, with labels of any length
    /// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>). References may contain anything.
    pub fn is_possible(&self) -> bool {
        is_subdomain(&self.namespace) && is_subdomain(&self.name)
    }
}

/// Whether a name is an RFC 1123 subdomain, with labels of any length.
pub fn is_subdomain(name: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().is_some_and(is_end) && bytes.last().is_some_and(is_end);
        ends && bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// `namespace/name`, or the name alone where there is no namespace.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The name of a virtual host, lower-case: exact (`a.test`), a wildcard of one label (`*.a.test`), or `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HostName(Arc<str>);

impl HostName {
    /// From an Ingress rule: empty is the catch-all. Hosts are compared without regard to case (RFC 9110 4.2.3).
    pub fn from_rule(host: &str) -> Self {
        match host {
            "" => Self::catch_all(),
            host => Self(host.to_ascii_lowercase().into()),
        }
    }

    /// The host of requests that match no other.
    pub fn catch_all() -> Self {
        Self(CATCH_ALL.into())
    }

    /// Its text, which is also the key of its Host resource.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For `*.a.test`: `a.test`.
    pub fn wildcard_suffix(&self) -> Option<&str> {
        self.0.strip_prefix("*.")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text is a DNS-1123 subdomain as Kubernetes defines it: labels of lower-case letters, digits and dashes.
/// One trailing dot is ignored.
pub fn is_dns_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().is_some_and(is_end) && bytes.last().is_some_and(is_end);
        ends && bytes.len() <= 63 && bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::{HostName, ObjectName, is_dns_name};

    #[test]
    fn names_of_the_dns() {
        for name in ["a", "a.test", "a.test.", "www.10.0.0.1.xip.io", "x--y.9z", &["a"; 127].join(".")] {
            assert!(is_dns_name(name), "{name}");
        }
        let (label, name) = ("a".repeat(64), ["a"; 128].join("."));
        for wrong in [
            "",
            ".",
            "a..b",
            "a.test..",
            "-a",
            "a-.test",
            "invalid_name!",
            "A.test",
            "a b",
            "a\n",
            "ä.test",
            &label,
            &name,
        ] {
            assert!(!is_dns_name(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn an_object_name_needs_a_namespace_and_a_name() {
        let name = ObjectName::parse("default/web").unwrap();
        assert_eq!(name.to_string(), "default/web");
        for wrong in ["", "web", "/web", "default/", "a/b/c"] {
            assert_eq!(ObjectName::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(ObjectName::new("", "nginx").to_string(), "nginx");
        assert!(ObjectName::new("a", "z") < ObjectName::new("b", "a"), "by namespace first");
        for (namespace, name, is_possible) in
            [("a", "b.c", true), ("A", "b", false), ("a", "B", false), ("", "b", false), ("a", "", false)]
        {
            assert_eq!(ObjectName::new(namespace, name).is_possible(), is_possible, "{namespace}/{name}");
        }
    }

    #[test]
    fn hosts_are_compared_without_case() {
        assert_eq!(HostName::from_rule("A.Test"), HostName::from_rule("a.test"));
        assert_eq!(HostName::from_rule(""), HostName::catch_all());
        assert_eq!(HostName::from_rule("*.A.test").wildcard_suffix(), Some("a.test"));
        assert_eq!(HostName::from_rule("a.test").wildcard_suffix(), None);
    }
}
