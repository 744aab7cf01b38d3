//! What is missing before anything is offered, for people.

use std::fmt;
use std::sync::Arc;

use shared::name::ObjectName;
use tokio::sync::watch;

use crate::freshness::{Forbidden, Freshness};
use crate::objects::{ObjectKind, ObjectRef};

/// What is missing before anything is offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Kinds whose first list is not complete.
    pub(super) kinds: Vec<ObjectKind>,
    /// An Ingress that names a class while IngressClasses may not be read, and that class.
    pub(super) undecided: Option<(ObjectName, String)>,
    /// The first of the referenced objects that were not read, each with the error if there was one.
    pub(super) objects: Vec<(ObjectRef, Option<Arc<str>>)>,
    /// The number of all such objects.
    pub(super) count: usize,
}

/// `waiting for the first list of: Secret`, or for objects: `Secret default/web (503: etcd changed its leader)`.
impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kinds, undecided, objects, count } = self;
        if !kinds.is_empty() {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
            return write!(f, "the first lists are not complete yet: waiting for {}", kinds.join(", "));
        }
        if let Some((ingress, class)) = undecided {
            return write!(
                f,
                "waiting for permission to read IngressClasses (forbidden): Ingress {ingress} names class {class}. \
                 Grant get, list and watch of ingressclasses.networking.k8s.io, or ignore them (--ignore-ingress-classes)"
            );
        }
        write!(f, "waiting for objects that others refer to: ")?;
        for (at, (object, failing)) in objects.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{object}")?;
            if let Some(reason) = failing {
                write!(f, " ({reason})")?;
            }
        }
        match count - objects.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// How the start proceeds.
#[derive(Clone, Debug)]
pub struct Start {
    /// What is missing; `None` before anything was read, and once something is offered.
    pub awaited: watch::Receiver<Option<Awaited>>,
    /// What may not be read, and whether the source answers.
    pub source: Freshness,
}

impl Default for Start {
    fn default() -> Self {
        Self { awaited: watch::Sender::new(None).subscribe(), source: Freshness::default() }
    }
}

impl Start {
    /// What is waited for before anything is offered.
    pub fn awaited(&self) -> String {
        let awaited = self.awaited.borrow().as_ref().map(ToString::to_string);
        awaited.unwrap_or_else(|| "nothing was read yet".to_owned())
    }

    /// The same, with what may not or cannot be read.
    pub fn missing(&self) -> String {
        let awaited = self.awaited();
        let forbidden = self.source.forbidden();
        let reasons: Vec<_> = forbidden.iter().map(|Forbidden { reason, .. }| &**reason).collect();
        let unheard = self.source.unheard().map(|it| format!(". This replica {it}")).unwrap_or_default();
        let failing: String =
            self.source.failing().iter().map(|it| format!(". This replica: {it}")).collect();
        match reasons.is_empty() {
            true => format!("{awaited}{unheard}{failing}"),
            false => {
                format!("{awaited}{unheard}{failing}. Grant get, list and watch: {}", reasons.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::{Failing, Unheard};
    use crate::moment::Since;

    #[test]
    fn what_may_not_be_read_is_told_as_the_api_server_says_it() {
        let (awaits, awaited) = watch::channel(None);
        let start = Start { awaited, source: Freshness::default() };
        assert_eq!(start.missing(), "nothing was read yet");
        let reason =
            "services is forbidden: User \"u\" cannot list resource \"services\" at the cluster scope";
        let services = Forbidden { kind: ObjectKind::Service, reason: reason.into() };
        start.source.note_forbidden(services.clone());
        assert_eq!(
            start.missing(),
            format!("nothing was read yet. Grant get, list and watch: {reason}"),
            "nothing else may be read, either"
        );
        let kinds = vec![ObjectKind::Service];
        awaits.send_replace(Some(Awaited { kinds, undecided: None, objects: Vec::new(), count: 0 }));
        let waits = "the first lists are not complete yet: waiting for Service";
        assert_eq!(start.missing(), format!("{waits}. Grant get, list and watch: {reason}"));
        start.source.note_allowed(&services);
        assert_eq!(start.missing(), waits);
        let since = Since { at: shared::clock::now(), wall: std::time::UNIX_EPOCH };
        start.source.note_unheard(Some(Unheard { since, reason: "no answer".into() }));
        let unheard = "This replica has not heard the API server since 1970-01-01T00:00:00Z (no answer)";
        assert_eq!(start.missing(), format!("{waits}. {unheard}"));
        start.source.note_unheard(None);
        let (kind, list) = (ObjectKind::Service, "services in all namespaces".into());
        start.source.note_failing(Failing {
            kind,
            list,
            since,
            reason: "a list was refused with 500: no".into(),
        });
        let failing = "This replica: reading services in all namespaces fails since 1970-01-01T00:00:00Z (a list was refused with 500: no)";
        assert_eq!(start.missing(), format!("{waits}. {failing}"));
    }
}
