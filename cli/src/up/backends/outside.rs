//! ExternalName Services that Ingresses point to: their names are looked up, since what is outside of the folder may not be
//! there. The proxy resolves them by itself; here it is only reported.

use std::collections::BTreeSet;
use std::future::pending;

use shared::name::ObjectName;
use tokio::net::lookup_host;
use tokio::task::JoinSet;

/// An Ingress that points to an ExternalName Service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pointer {
    pub(super) host: String,
    pub(super) ingress: ObjectName,
    pub(super) service: ObjectName,
}

/// Those of the folder, and the lookups that run.
#[derive(Debug, Default)]
pub(super) struct Outside {
    known: BTreeSet<Pointer>,
    lookups: JoinSet<Option<String>>,
}

impl Outside {
    /// Looks up the names of those that are new.
    pub(super) fn set(&mut self, pointers: BTreeSet<Pointer>) {
        for pointer in pointers.difference(&self.known) {
            self.lookups.spawn(complaint(pointer.clone()));
        }
        self.known = pointers;
    }

    /// The next that leads nowhere. Cancel-safe; pending if there is none.
    pub(super) async fn next(&mut self) -> String {
        while let Some(done) = self.lookups.join_next().await {
            if let Ok(Some(complaint)) = done {
                return complaint;
            }
        }
        pending().await
    }
}

async fn complaint(Pointer { host, ingress, service }: Pointer) -> Option<String> {
    let error = lookup_host((host.as_str(), 0)).await.err()?;
    Some(format!(
        "Service {service} of Ingress {ingress} leads nowhere: its external name {host} cannot be resolved ({error}); \
         requests for it answer 503"
    ))
}
