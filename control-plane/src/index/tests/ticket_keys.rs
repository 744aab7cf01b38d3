//! Session ticket keys: which ones are used, and that they appear only where secrets may be.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use shared::kind::Kind;
use shared::resource::{Material, Resource, TICKET_KEYS, TicketKeys};
use zeroize::Zeroizing;

use super::fixture::*;
use crate::event::Event;
use crate::index::Options;
use crate::objects::{Object, ObjectKind, ObjectRef, Secret};
use crate::tickets::record::{RECORD, Record};

fn place() -> ObjectRef {
    ObjectRef { kind: ObjectKind::Secret, name: options().ticket_keys }
}

fn on_record(record: &Record) -> Object {
    let mut secret = Secret::default();
    secret.metadata.namespace = place().name.namespace;
    secret.metadata.name = place().name.name;
    secret.data.insert(RECORD.into(), STANDARD.encode(&*record.to_text()));
    Object::Secret(secret.into())
}

fn record(byte: u8) -> Record {
    Record::create(UNIX_EPOCH + Duration::from_secs(1), || Zeroizing::new([byte; 32]))
}

fn first_key(world: &World) -> Option<u8> {
    match world.get(Kind::Material, TICKET_KEYS)? {
        Resource::Material(Material::TicketKeys(TicketKeys(keys))) => Some(keys[0][0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_record_is_asked_for_and_sent_where_the_fleet_has_tickets() {
    let mut world = World::default();
    world.apply(on_record(&record(7)));
    let is_wanted = |world: &World| world.index.wants().contains(&place());
    assert_eq!((is_wanted(&world), first_key(&world)), (false, None), "nobody asks for tickets");
    world.apply(configmap(json!({"ssl-session-tickets": "true"})));
    assert_eq!((is_wanted(&world), first_key(&world)), (true, Some(7)));
    world.apply(on_record(&record(8)));
    assert_eq!(first_key(&world), Some(8), "rotated");
    world.apply(secret("cert", 0));
    assert_eq!(first_key(&world), Some(8), "another Secret has nothing to do with it");
    world.events([Event::Deleted(place())]);
    assert_eq!((is_wanted(&world), first_key(&world)), (true, None), "proxies have keys of their own");
    world.apply(on_record(&record(9)));
    world.apply(configmap(json!({"ssl-session-tickets": "false"})));
    assert_eq!((is_wanted(&world), first_key(&world)), (false, None));
}

#[test]
fn a_key_of_the_configmap_is_a_secret_and_comes_before_the_record() {
    let mut world = World::default();
    let key = STANDARD.encode([0xA5; 80]);
    world.apply(on_record(&record(7)));
    let commit =
        world.apply(configmap(json!({"ssl-session-tickets": "true", "ssl-session-ticket-key": key})));
    assert_eq!(first_key(&world), Some(0xA5));
    assert!(!world.index.wants().contains(&place()), "none is made where it is not needed");
    assert!(!commit.cause.contains(&key[..8]), "{}", commit.cause);
    let shown = world.config.iter().any(|entry| entry.body.windows(8).any(|bytes| bytes == [0xA5; 8]));
    assert!(!shown, "nothing of it stands in what is kept and shown");
    let other = STANDARD.encode([0x5A; 48]);
    world.apply(configmap(json!({"ssl-session-tickets": "true", "ssl-session-ticket-key": other})));
    assert_eq!(first_key(&world), Some(0x5A));
    world.apply(configmap(json!({"ssl-session-tickets": "true", "ssl-session-ticket-key": "hunter2"})));
    assert_eq!(first_key(&world), Some(7), "none that can be used: the fleet's own");
    world.apply(configmap(json!({"ssl-session-ticket-key": key})));
    assert_eq!(first_key(&world), None, "without tickets nobody needs it");
}

#[test]
fn a_folder_is_not_all_there_before_its_keys_are() {
    let mut world = World::with(Options { folder: true, ..options() });
    world.apply(configmap(json!({"ssl-session-tickets": "true"})));
    assert_eq!(
        world.index.awaited().keys().collect::<Vec<_>>(),
        [&place()],
        "they would be taken from proxies"
    );
    world.apply(on_record(&record(7)));
    assert_eq!((world.index.awaited().len(), first_key(&world)), (0, Some(7)));
}
