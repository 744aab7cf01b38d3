//! Users' names of policy fields: the annotations that set them.
//!
//! There is no list of names: each row of the annotations' table is parsed with its own samples, and the fields that
//! change are its fields. So a new annotation needs nothing here.

use std::collections::BTreeMap;

use prost::Message;
use shared::kind::Kind;
use shared::name::ObjectName;

use super::body::Bodies;
use super::leaves::{self, Leaves};
use crate::annotations::row::{Row, Status};
use crate::annotations::{self, PREFIX, table};
use crate::objects::Texts;

/// Annotations by the message and path of the field that they set.
#[derive(Debug)]
pub(super) struct Terms(BTreeMap<(&'static str, String), &'static str>);

impl Terms {
    pub(super) fn new(bodies: &Bodies) -> Self {
        // The annotation that sets the fewest fields is the most specific one.
        let mut best = BTreeMap::new();
        for row in table::ROWS.iter().filter(|row| row.value.status() == Status::Honoured) {
            let fields = fields_of(row, bodies);
            for field in &fields {
                let rank = (fields.len(), row.name);
                let place = best.entry(field.clone()).or_insert(rank);
                *place = rank.min(*place);
            }
        }
        Self(best.into_iter().map(|(field, (_, name))| (field, name)).collect())
    }

    /// The name of a field of a body: its annotation, else its own name in the style of ConfigMap keys.
    pub(super) fn name(&self, kind: Kind, path: &str) -> String {
        let policy = match kind {
            Kind::Route => ("policy.", LOCATION),
            Kind::Host => ("policy.", HOST),
            Kind::Backend => ("policy.", BACKEND),
            Kind::Settings if path.starts_with("backend_defaults.") => ("backend_defaults.", BACKEND),
            _ => ("defaults.", LOCATION),
        };
        let Some(field) = path.strip_prefix(policy.0) else {
            return path.replace('_', "-");
        };
        match self.0.get(&(policy.1, field.to_owned())) {
            Some(name) => (*name).to_owned(),
            None => field.replace('_', "-"),
        }
    }
}

const LOCATION: &str = "LocationPolicy";
const HOST: &str = "HostPolicy";
const BACKEND: &str = "BackendPolicy";

/// The fields that some sample of an annotation sets or changes.
fn fields_of(row: &'static Row, bodies: &Bodies) -> Vec<(&'static str, String)> {
    let mut base = Texts::default();
    let mut needed = row.needs;
    while let Some(row) = needed.and_then(table::find) {
        say(&mut base, row, row.value.samples().0.first().copied().unwrap_or_default());
        needed = row.needs;
    }
    let without = set_by(&base, bodies);
    let mut fields = Vec::new();
    for sample in row.value.samples().0 {
        let mut annotations = base.clone();
        say(&mut annotations, row, sample);
        for (message, leaves) in set_by(&annotations, bodies) {
            let before = without.iter().find(|(it, _)| *it == message).map(|(_, leaves)| leaves);
            let is_new = |(path, value): &(&String, &String)| {
                before.and_then(|before| before.get(*path)) != Some(*value)
            };
            fields.extend(leaves.iter().filter(is_new).map(|(path, _)| (message, path.clone())));
        }
    }
    fields.sort();
    fields.dedup();
    fields
}

fn say(annotations: &mut Texts, row: &Row, value: &str) {
    annotations.insert(format!("{PREFIX}{}", row.name), value.to_owned());
}

fn set_by(annotations: &Texts, bodies: &Bodies) -> [(&'static str, Leaves); 3] {
    let parsed = annotations::read(&ObjectName::new("namespace", "name"), annotations);
    let leaves = |name, bytes: Vec<u8>| {
        let body = bodies.message(name, bytes.into()).unwrap_or_default();
        (name, leaves::of(&body))
    };
    [
        leaves(LOCATION, parsed.serving.location.encode_to_vec()),
        leaves(HOST, parsed.serving.host.encode_to_vec()),
        leaves(BACKEND, parsed.backend.encode_to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_called_as_their_annotations() {
        let terms = Terms::new(&Bodies::new().unwrap());
        for (kind, path, name) in [
            (Kind::Route, "policy.ssl_redirect", "ssl-redirect"),
            (Kind::Route, "policy.satisfy_any", "satisfy"),
            (Kind::Route, "policy.basic_auth.realm", "auth-realm"),
            (Kind::Route, "policy.external_auth.url", "auth-url"),
            (Kind::Route, "policy.proxy_set_headers", "proxy-set-headers"),
            (Kind::Backend, "policy.canary.weight", "canary-weight"),
            (Kind::Backend, "policy.affinity.max_age", "session-cookie-max-age"),
            (Kind::Backend, "port.target_port", "port.target-port"),
            (Kind::Host, "policy.aliases", "server-alias"),
            (Kind::Host, "policy.www", "from-to-www-redirect"),
            (Kind::Settings, "defaults.keep_alive", "keep-alive"),
            (Kind::Settings, "backend_defaults.service_upstream", "service-upstream"),
            (Kind::Settings, "default_certificate", "default-certificate"),
        ] {
            assert_eq!(terms.name(kind, path), name, "{path}");
        }
    }
}
