//! What is the same of holds in a cluster and in a folder: the names under which they are stored, and what is said of
//! those that cannot be.

mod failures;

use crate::objects::ObjectRef;
pub use failures::Failures;

/// Name of the record that holds an object: the same on every replica, valid as an object's and a file's name.
pub fn record_name(object: &ObjectRef) -> String {
    let ObjectRef { kind, name } = object;
    let place = format!("{}/{}/{}", kind.as_str(), name.namespace, name.name);
    let digest = blake3::hash(place.as_bytes()).to_hex();
    format!("firth-hold-{}", &digest.as_str()[..32])
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::objects::ObjectKind;

    #[test]
    fn a_name_for_each_object() {
        let name = |kind, namespace: &str, name: &str| {
            record_name(&ObjectRef { kind, name: ObjectName::new(namespace, name) })
        };
        let web = name(ObjectKind::Ingress, "default", "web");
        assert_eq!(web.len(), "firth-hold-".len() + 32);
        assert_eq!(web, name(ObjectKind::Ingress, "default", "web"));
        assert_ne!(web, name(ObjectKind::Service, "default", "web"));
        assert_ne!(web, name(ObjectKind::Ingress, "defaul", "tweb"));
    }
}
