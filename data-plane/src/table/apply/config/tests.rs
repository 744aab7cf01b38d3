//! Every field of every policy, by descriptor: changing it recompiles the hosts that use it, and no other.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind as FieldKind, Value};
use shared::policy::{BackendPolicy, HostPolicy, LocationPolicy};
use shared::proto::DESCRIPTORS;
use shared::resource::{Path, PathType, Route};

use super::*;

/// Each field of a policy: its name, and a policy with only this field set.
fn each_field<P: Message + Default>(policy: &str) -> Vec<(String, P)> {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let policy = pool.get_message_by_name(&format!("firth.config.v1.{policy}")).unwrap();
    let configured = |field: FieldDescriptor| {
        let mut message = DynamicMessage::new(policy.clone());
        let value = match field.kind() {
            FieldKind::Message(it) => Value::Message(DynamicMessage::new(it)),
            FieldKind::Enum(it) => Value::EnumNumber(it.values().map(|it| it.number()).max().unwrap()),
            // Set to its default: what matters is that it is set.
            kind => Value::default_value(&kind),
        };
        message.set_field(&field, value);
        (field.name().to_owned(), P::decode(message.encode_to_vec().as_slice()).unwrap())
    };
    policy.fields().map(configured).collect()
}

fn route(policy: &LocationPolicy, backend: &str) -> Resource {
    let path =
        Path { path: "/".into(), kind: PathType::Prefix, backend: Some(backend.into()), after_exact: false };
    Resource::Route(Route { paths: vec![path], policy: policy.to_owned(), ..Route::default() })
}

/// The hosts `said.test`, whose Route has `policy`, and `silent.test`, whose Route has none; each has a Backend.
fn world(policy: &LocationPolicy) -> Config {
    let mut config = Config::default();
    for (name, policy) in [("said", policy), ("silent", &LocationPolicy::default())] {
        let (host, backend) = (format!("{name}.test"), format!("ns/{name}/80"));
        config.put(&host.as_str().into(), Resource::Host(Host::default()));
        let key = format!("ingress/ns/{name}/{host}").into();
        config.put(&key, route(policy, &backend));
        config.put(&backend.as_str().into(), Resource::Backend(Backend::default()));
        config.set_uses(&key, &FewOf::default(), &FewOf::from_iter([backend.into()]));
    }
    config.take_touched();
    config
}

fn compiled(config: &mut Config, key: &str, resource: Resource) -> Vec<String> {
    config.put(&key.into(), resource);
    let mut hosts: Vec<_> = config.take_touched().hosts.keys().map(ToString::to_string).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_location_s_field_compiles_its_host() {
    for (field, policy) in each_field::<LocationPolicy>("LocationPolicy") {
        let mut config = world(&LocationPolicy::default());
        let configured = || route(&policy, "ns/said/80");
        assert_eq!(
            compiled(&mut config, "ingress/ns/said/said.test", configured()),
            ["said.test"],
            "{field}"
        );
        assert!(
            compiled(&mut config, "ingress/ns/said/said.test", configured()).is_empty(),
            "{field}: said again"
        );
    }
}

#[test]
fn a_default_compiles_the_hosts_that_do_not_say_it_themselves() {
    for (field, policy) in each_field::<LocationPolicy>("LocationPolicy") {
        let settings = || Settings { defaults: policy.to_owned(), ..Settings::default() };
        let mut config = world(&policy);
        // A host has its own, and those of the fleet.
        let expected: &[_] =
            if field == "host_shortcuts" { &["said.test", "silent.test"] } else { &["silent.test"] };
        let touched = compiled(&mut config, "default", Resource::Settings(settings()));
        assert_eq!(touched, expected, "{field}");
        assert!(compiled(&mut config, "default", Resource::Settings(settings())).is_empty(), "{field}");
        let touched = compiled(&mut config, "default", Resource::Settings(Settings::default()));
        assert_eq!(touched, expected, "{field} is taken back");
    }
}

#[test]
fn a_host_s_field_compiles_it() {
    for (field, policy) in each_field::<HostPolicy>("HostPolicy") {
        let mut config = world(&LocationPolicy::default());
        let host = || Resource::Host(Host { policy: policy.to_owned(), ..Host::default() });
        assert_eq!(compiled(&mut config, "said.test", host()), ["said.test"], "{field}");
        assert!(compiled(&mut config, "said.test", host()).is_empty(), "{field}: said again");
    }
}

#[test]
fn a_backend_s_field_compiles_the_hosts_that_name_it() {
    for (field, policy) in each_field::<BackendPolicy>("BackendPolicy") {
        let mut config = world(&LocationPolicy::default());
        let backend = || Resource::Backend(Backend { policy: policy.to_owned(), ..Backend::default() });
        assert_eq!(compiled(&mut config, "ns/said/80", backend()), ["said.test"], "{field}");
        assert!(compiled(&mut config, "ns/said/80", backend()).is_empty(), "{field}: said again");
    }
}
