//! What a proxy would refuse of what a control plane sends: it judges policies, keys and certificates once more.

use std::sync::Arc;

use control_plane::app::check::owner;
use control_plane::objects::{ObjectKind, ObjectRef};
use control_plane::problem::{Problem, Severity, Subject};
use data_plane::table::apply::Writer;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::name::ObjectName;

/// The problems that only a proxy finds. `configmap`: the one with the settings of the fleet.
pub(super) fn refused(config: &Delta, live: &Delta, configmap: &ObjectName) -> Vec<Problem> {
    let mut proxy = Writer::new();
    // Ports of TCP and UDP services are not bound by a check.
    let without_ports = |delta: &Delta| -> Vec<Arc<Entry>> {
        delta.up.iter().filter(|it| it.kind() != Kind::Listener).cloned().collect()
    };
    proxy.apply(proxy.live_after(without_ports(live), &[]));
    proxy.apply(proxy.config_of(without_ports(config)));
    let all = [Lane::Config, Lane::Live].into_iter().flat_map(|lane| proxy.refused(lane));
    let refused = all.map(|(key, refused)| {
        (key.clone(), format!("proxies refuse its {} {}: {}", key.kind, key.key, refused.reason))
    });
    refused
        .chain(uncompiled(&proxy, config))
        .map(|(key, reason)| Problem {
            object: object(&key, config, live, configmap)
                .map_or_else(|| Subject::File(format!("{} {}", key.kind, key.key).into()), Subject::Object),
            field: String::new(),
            severity: Severity::Rejected,
            reason,
            location: String::new(),
        })
        .collect()
}

/// Hosts whose regular expressions are too large together, by the Route of the first that is left out.
fn uncompiled(proxy: &Writer, config: &Delta) -> Vec<(ResourceKey, String)> {
    let mut reader = proxy.tables().reader();
    let table = reader.load();
    let names = config.up.iter().filter(|it| it.kind() == Kind::Host).map(|it| &it.key.key);
    let told = names.filter_map(|name| {
        let mut paths = table.host(name)?.uncompiled();
        let first = &paths.next()?.entry;
        let others = match paths.count() {
            0 => String::new(),
            count => format!(", nor {count} more"),
        };
        let reason = format!(
            "proxies cannot compile its path {}{others}: all regular expressions of the host {name} together take too much memory. \
             Requests that no longer path takes are answered 500",
            first.declared()
        );
        Some((ResourceKey::new(Kind::Route, &**first.route()), reason))
    });
    told.collect()
}

/// The object that a resource is made of; of a Host, the first Ingress that has paths there.
fn object(key: &ResourceKey, config: &Delta, live: &Delta, configmap: &ObjectName) -> Option<ObjectRef> {
    match key.kind {
        Kind::Settings => Some(ObjectRef { kind: ObjectKind::ConfigMap, name: configmap.clone() }),
        Kind::Host => {
            let is_there = |it: &&Arc<Entry>| {
                it.kind() == Kind::Route && it.key.key.rsplit('/').next() == Some(&*key.key)
            };
            owner(&config.up.iter().find(is_there)?.key, live)
        }
        _ => owner(key, live),
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;
    use shared::resource::{Certificate, Endpoints, Resource, Route, Settings};

    use super::*;

    #[test]
    fn what_a_proxy_refuses_is_told_of_its_object() {
        let entry = |key: &str, resource: Resource| Arc::new(Entry::encode(key, &resource));
        let with_code = |code: u32| {
            let policy = LocationPolicy { permanent_redirect_code: Some(code), ..LocationPolicy::default() };
            let route = Route { paths: Vec::new(), denied: None, policy };
            Delta {
                up: vec![entry("ingress/default/web/a.test", Resource::Route(route))],
                removed: Vec::new(),
            }
        };
        let configmap = ObjectName::new("fleet", "settings");
        assert_eq!(refused(&with_code(308), &Delta::default(), &configmap), []);
        let found = refused(&with_code(999), &Delta::default(), &configmap);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object.to_string(), "Ingress default/web");
        let reason = "proxies refuse its route ingress/default/web/a.test: ";
        assert!(found[0].reason.starts_with(reason), "{found:?}");

        let certificate =
            Certificate { leaf: b"x".as_slice().into(), key: b"y".as_slice().into(), chain: None };
        let live =
            Delta { up: vec![entry("a/cert", Resource::Certificate(certificate))], removed: Vec::new() };
        let found = refused(&Delta::default(), &live, &configmap);
        assert_eq!(found.iter().map(|it| it.object.to_string()).collect::<Vec<_>>(), ["Secret a/cert"]);

        let policy = || LocationPolicy { permanent_redirect_code: Some(999), ..LocationPolicy::default() };
        let settings = Settings { defaults: policy(), ..Settings::default() };
        let config = Delta { up: vec![entry("default", Resource::Settings(settings))], removed: Vec::new() };
        let found = refused(&config, &Delta::default(), &configmap);
        let objects: Vec<_> = found.iter().map(|it| it.object.to_string()).collect();
        assert_eq!(objects, ["ConfigMap fleet/settings"]);

        let mut config = with_code(308);
        let elsewhere = Resource::Route(Route::default());
        config.up.insert(0, entry("ingress/default/other/b.test", elsewhere));
        let host = ResourceKey::new(Kind::Host, "a.test");
        let of_host = object(&host, &config, &Delta::default(), &configmap);
        assert_eq!(of_host.unwrap().to_string(), "Ingress default/web", "who has paths there");
        assert_eq!(object(&host, &Delta::default(), &Delta::default(), &configmap), None);

        let slice = Endpoints { service: "a/web".into(), ..Endpoints::default() };
        let live = Delta { up: vec![entry("a/web-x7f2q", Resource::Endpoints(slice))], removed: Vec::new() };
        let of_slice = object(&live.up[0].key, &Delta::default(), &live, &configmap);
        assert_eq!(of_slice.unwrap().to_string(), "Service a/web", "not the name of the slice");
    }
}
