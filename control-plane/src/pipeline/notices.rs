//! What operators should read in the log, each thing once: problems that are new, and ConfigMaps that are read but not
//! honoured yet.

use std::collections::BTreeSet;

use imbl::ordmap::DiffItem;
use shared::name::ObjectName;
use tracing::{info, warn};

use crate::event::Event;
use crate::objects::Object;
use crate::problem::{Problem, Problems, Severity};

/// Logs the problems that were not there before.
pub(super) fn log_new(before: &Problems, now: &Problems) {
    for item in before.diff(now) {
        let (old, new): (&[Problem], &[Problem]) = match item {
            DiffItem::Add(_, new) => (&[], new),
            DiffItem::Update { old: (_, old), new: (_, new) } => (old, new),
            DiffItem::Remove(object, _) => {
                info!(%object, "no problem any more");
                continue;
            }
        };
        for problem in new.iter().filter(|problem| !old.contains(problem)) {
            match problem.severity {
                Severity::Rejected | Severity::Unsupported => warn!("{problem}"),
                Severity::Overridden | Severity::Warning => info!("{problem}"),
            }
        }
    }
}

/// The ConfigMaps with TCP and UDP services: they are read, and what they ask for is not served yet.
#[derive(Debug)]
pub struct PortConfigMaps {
    /// `--tcp-services-configmap`.
    tcp: ObjectName,
    /// `--udp-services-configmap`.
    udp: ObjectName,
    said: BTreeSet<(ObjectName, String)>,
}

impl PortConfigMaps {
    /// Both names.
    pub fn new(tcp: ObjectName, udp: ObjectName) -> Self {
        Self { tcp, udp, said: BTreeSet::new() }
    }

    /// Says once for each port that it is not served yet.
    pub(super) fn look_at(&mut self, event: &Event) {
        let Event::Applied { object: Object::ConfigMap(map), .. } = event else {
            return;
        };
        let name = map.metadata.object_name();
        if name != self.tcp && name != self.udp {
            return;
        }
        for (port, service) in &map.data {
            if self.said.insert((name.clone(), port.clone())) {
                warn!(
                    "ConfigMap {name}: port {port} ({service}) is not served yet: TCP and UDP services come later"
                );
            }
        }
    }
}
