//! The IngressClasses of manifests whose Ingresses are all another controller's: in a cluster with several that is usual, and where
//! nothing at all is served it is most likely a flag that is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use control_plane::event::Event;
use control_plane::objects::{Object, ObjectKind};
use shared::name::ObjectName;

/// IngressClasses, and the Ingresses that name them in their field.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// The controller of each class.
    controllers: BTreeMap<Arc<str>, String>,
    named: BTreeMap<ObjectName, String>,
}

/// A class of another controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Other<'a> {
    pub(crate) class: &'a str,
    controller: &'a str,
    /// Number of Ingresses.
    count: usize,
}

impl Classes {
    /// Takes in an event of the manifests.
    pub(crate) fn hear(&mut self, event: &Event) {
        match event {
            Event::Applied { object: Object::IngressClass(class), .. } => {
                let name = Arc::clone(&class.metadata.name);
                self.controllers.insert(name, class.spec.controller.clone());
            }
            Event::Applied { object: Object::Ingress(ingress), .. } => {
                let name = ingress.metadata.object_name();
                match &ingress.spec.ingress_class_name {
                    Some(class) => drop(self.named.insert(name, class.clone())),
                    None => drop(self.named.remove(&name)),
                }
            }
            Event::Deleted(object) if object.kind == ObjectKind::IngressClass => {
                self.controllers.remove(&object.name.name);
            }
            Event::Deleted(object) if object.kind == ObjectKind::Ingress => {
                drop(self.named.remove(&object.name))
            }
            _ => {}
        }
    }

    /// Those of other controllers than `ours` that Ingresses name, by name.
    pub(crate) fn of_others(&self, ours: &str) -> Vec<Other<'_>> {
        let others = self.controllers.iter().filter(|(_, controller)| *controller != ours);
        let counted = others.map(|(class, controller)| Other {
            class,
            controller,
            count: self.named.values().filter(|named| ***named == **class).count(),
        });
        counted.filter(|other| other.count > 0).collect()
    }
}

impl Other<'_> {
    /// Why its Ingresses are not served, and what would serve them.
    pub(crate) fn reason(&self, ours: &str) -> String {
        let Self { controller, count, .. } = self;
        let of = if *count == 1 { "1 Ingress is" } else { &format!("{count} Ingresses are") };
        format!(
            "{of} of this class, whose controller is {controller}, not {ours}: FIRTH_CONTROLLER_CLASS={controller} serves its Ingresses"
        )
    }
}

#[cfg(test)]
mod tests {
    use control_plane::Manifests;
    use control_plane::objects::ObjectRef;

    use super::*;

    const TEXT: &str = "\
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: inner}
spec: {controller: k8s.io/internal-nginx}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: idle}
spec: {controller: example.com/idle}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {ingressClassName: inner}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: other}
spec: {ingressClassName: inner}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: none}
";

    #[test]
    fn classes_of_other_controllers_are_told_with_the_flag_that_serves_them() {
        let mut classes = Classes::default();
        let told = |classes: &Classes, ours: &str| {
            let others = classes.of_others(ours);
            others.iter().map(|other| format!("{}: {}", other.class, other.reason(ours))).collect::<Vec<_>>()
        };
        Manifests::of_texts([("-".to_owned(), TEXT.to_owned())])
            .events
            .iter()
            .for_each(|it| classes.hear(it));
        let ours = "k8s.io/ingress-nginx";
        let two = "inner: 2 Ingresses are of this class, whose controller is k8s.io/internal-nginx, not \
                   k8s.io/ingress-nginx: FIRTH_CONTROLLER_CLASS=k8s.io/internal-nginx serves its Ingresses";
        assert_eq!(told(&classes, ours), [two]);
        assert_eq!(told(&classes, "k8s.io/internal-nginx"), [""; 0]);
        let gone = |kind, namespace, name| {
            Event::Deleted(ObjectRef { kind, name: ObjectName::new(namespace, name) })
        };
        classes.hear(&gone(ObjectKind::Ingress, "default", "web"));
        assert!(told(&classes, ours)[0].starts_with("inner: 1 Ingress is of this class, "));
        classes.hear(&gone(ObjectKind::IngressClass, "", "inner"));
        assert_eq!(told(&classes, ours), [""; 0]);
    }
}
