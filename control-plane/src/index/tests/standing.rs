//! A living Ingress that gets a reference to an object that was not read yet.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use shared::kind::Kind;
use shared::resource::Resource;

use super::super::Options;
use super::fixture::*;
use super::properties::assert_same;
use super::references::htpasswd;
use super::restrictions::authorities;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::placement::Report;

fn on_demand() -> World {
    World::with(Options { on_demand: true, ..options() })
}

fn open() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")])
}

fn guarded(secret: &str) -> Ing {
    open().annotation("auth-type", "basic").annotation("auth-secret", secret)
}

fn the(name: &str) -> ObjectRef {
    reference(ObjectKind::Secret, name)
}

fn unreadable(name: &str) -> Event {
    Event::Unreadable { object: the(name), reason: "503".into() }
}

/// How the only Route is served: its denial, and who may pass.
#[derive(PartialEq, Debug)]
enum Served {
    Open,
    To(String),
    Denied(String),
}

fn served(world: &World) -> Served {
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => match (route.denied, route.policy.basic_auth) {
            (Some(denial), _) => Served::Denied(denial.reason),
            (None, Some(basic)) => Served::To(basic.users),
            (None, None) => Served::Open,
        },
        other => panic!("{other:?}"),
    }
}

fn to(secret: &str) -> Served {
    Served::To(format!("default/{secret}/auth-file"))
}

fn is_denied_unread(world: &World) -> bool {
    matches!(served(world), Served::Denied(why) if why.contains("was not read yet"))
}

/// A world that serves the open Ingress.
fn living() -> World {
    let mut world = on_demand();
    world.apply(open());
    assert_eq!(served(&world), Served::Open);
    world
}

#[test]
fn a_living_ingress_is_served_as_before_until_what_it_names_was_read() {
    let mut world = living();
    let commit = world.apply(guarded("users").annotation("ssl-redirect", "false"));
    assert!(commit.config.is_empty() && commit.wants_changed, "nothing changes, and the Secret is read");
    assert_eq!((served(&world), world.problems_of("web")), (Served::Open, vec![]));
    assert!(world.index.wants().contains(&the("users")));
    let commit = world.apply(htpasswd("users", "ann:x"));
    assert_eq!(served(&world), to("users"));
    assert!(commit.cause.contains("Ingress default/web: "), "{}", commit.cause);
    assert_eq!(world.keys(Kind::Material), ["default/users/auth-file"]);
    world.apply(open());
    assert_eq!((served(&world), world.index.wants().len()), (Served::Open, 0));
}

#[test]
fn what_is_late_or_cannot_be_read_is_denied() {
    for said in [Event::Late(the("users")), unreadable("users")] {
        let mut world = living();
        world.apply(guarded("users"));
        let commit = world.events([said.clone()]);
        assert!(is_denied_unread(&world), "{said:?}");
        assert_eq!(world.problems_of("web").len(), 1);
        assert!(commit.cause.starts_with("Ingress default/web: "), "{}", commit.cause);
        // It does not wait again for the same one, nor for another one: it is not served.
        world.apply(guarded("users").annotation("ssl-redirect", "false"));
        assert!(is_denied_unread(&world));
        world.apply(guarded("others"));
        assert!(is_denied_unread(&world));
        world.apply(htpasswd("others", "ann:{SHA}x"));
        assert_eq!((served(&world), world.problems_of("web")), (to("others"), vec![]));
    }
}

#[test]
fn absence_is_known_and_denied() {
    let mut world = living();
    world.apply(guarded("users"));
    world.events([Event::Deleted(the("users"))]);
    assert!(matches!(served(&world), Served::Denied(why) if why.contains("does not exist")));
}

/// One that is late cannot be undone by another one that is not.
#[test]
fn all_are_waited_for_and_one_that_fails_ends_it() {
    let both = || guarded("users").annotation("auth-tls-secret", "default/ca");
    let mut world = living();
    world.apply(both());
    world.apply(htpasswd("users", "ann:x"));
    assert_eq!(served(&world), Served::Open);
    world.apply(authorities("ca"));
    assert_eq!(served(&world), to("users"));
    assert_eq!(world.keys(Kind::Material), ["default/ca/auth-tls", "default/users/auth-file"]);

    let mut world = living();
    world.apply(both());
    world.events([Event::Late(the("ca"))]);
    assert!(is_denied_unread(&world), "the users were not read");
}

#[test]
fn what_it_has_stays_until_the_new_version_counts() {
    let mut world = living();
    world.events([applied(guarded("old")), applied(htpasswd("old", "ann:x"))]);
    // The password goes, and client certificates come: neither is missing in between.
    let certified = open().annotation("auth-tls-secret", "default/ca");
    world.apply(certified);
    assert_eq!(served(&world), to("old"));
    world.apply(htpasswd("old", "bob:y"));
    assert_eq!(world.keys(Kind::Material), ["default/old/auth-file"]);
    world.apply(authorities("ca"));
    assert_eq!(
        (served(&world), world.keys(Kind::Material)),
        (Served::Open, vec!["default/ca/auth-tls".into()])
    );
    assert_eq!(world.index.wants().len(), 1);
}

#[test]
fn a_change_of_mind_ends_it() {
    let mut world = living();
    world.apply(guarded("users"));
    world.apply(guarded("others"));
    assert_eq!((served(&world), world.index.wants().len()), (Served::Open, 1));
    world.apply(open().annotation("ssl-redirect", "false"));
    assert_eq!((served(&world), world.index.wants().len()), (Served::Open, 0));
    world.apply(guarded("users"));
    let commit = world.delete(ObjectKind::Ingress, "web");
    assert_eq!((world.keys(Kind::Route).len(), world.index.wants().len()), (0, 0));
    assert!(commit.wants_changed);
    // One that is made anew has nothing to stay with.
    world.apply(guarded("users"));
    assert!(is_denied_unread(&world));
}

#[test]
fn another_object_of_the_name_is_a_first_version() {
    let mut world = on_demand();
    let of = |it: Ing, uid: &str| it.with(|it| it["metadata"]["uid"] = uid.into());
    world.apply(of(open(), "1"));
    world.apply(of(guarded("users"), "2"));
    assert!(is_denied_unread(&world));
}

#[test]
fn what_is_not_ours_or_not_allowed_any_more_does_not_stay() {
    let mut world = living();
    world.apply(guarded("users"));
    world.apply(guarded("users").with(|it| it["metadata"]["annotations"] = serde_json::json!({})));
    assert_eq!(world.keys(Kind::Route).len(), 0);

    let mut world = on_demand();
    world.apply(open().annotation("app-root", "/x"));
    world.apply(guarded("users"));
    assert_eq!(served(&world), Served::Open);
    world.apply(configmap(serde_json::json!({"annotation-value-word-blocklist": "/x"})));
    assert!(is_denied_unread(&world), "the operator forbids what it said");
}

/// Nobody is told that a version is served that is not.
#[test]
fn the_version_that_is_served_is_reported() {
    let revision = |commit: &super::super::Commit| {
        commit.reports.iter().find_map(|(object, report)| match report {
            Report::Compiled(it) if object.kind == ObjectKind::Ingress => {
                Some(it.resource_version.to_string())
            }
            _ => None,
        })
    };
    let at = |it: Ing, revision: &str| it.with(|it| it["metadata"]["resourceVersion"] = revision.into());
    let mut world = on_demand();
    assert_eq!(revision(&world.apply(at(open(), "1"))).as_deref(), Some("1"));
    assert_eq!(revision(&world.apply(at(guarded("users"), "2"))).as_deref(), Some("1"));
    assert_eq!(revision(&world.apply(htpasswd("users", "ann:x"))).as_deref(), Some("2"));
}

/// Objects of which all is read at once wait for nothing.
#[test]
fn a_folder_waits_for_nothing() {
    let mut world = World::default();
    world.apply(open());
    world.apply(guarded("users"));
    assert!(matches!(served(&world), Served::Denied(why) if why.contains("does not exist")));
}

const SECRETS: [&str; 3] = ["one", "two", "ca"];

#[derive(Clone, Debug)]
enum Step {
    Edit(Object),
    Delete,
    Answer(Event),
    Commit,
}

fn an_edit() -> impl Strategy<Value = Object> {
    let secret = select(&["", "one", "two", "gone", "other/one"][..]);
    (secret, any::<bool>(), any::<bool>(), select(&["1", "1", "1", "2"][..])).prop_map(
        |(secret, certified, redirects, uid)| {
            let mut it = if secret.is_empty() { open() } else { guarded(secret) };
            if certified {
                it = it.annotation("auth-tls-secret", "default/ca");
            }
            if redirects {
                it = it.annotation("ssl-redirect", "false");
            }
            it.with(|it| it["metadata"]["uid"] = uid.into()).into()
        },
    )
}

/// One is made once: another one has another key.
static AUTHORITIES: LazyLock<Object> = LazyLock::new(|| authorities("ca"));

/// What the source says of an object in the end.
fn answer(name: &str) -> Event {
    match name {
        "ca" => applied(AUTHORITIES.clone()),
        "gone" => Event::Deleted(the("gone")),
        name => applied(htpasswd(name, "ann:x")),
    }
}

fn a_step() -> impl Strategy<Value = Step> {
    let name = select(&["one", "two", "ca", "gone"][..]);
    let said = (name, 0..4_u32).prop_map(|(name, dice)| match dice {
        0 => Event::Late(the(name)),
        1 => unreadable(name),
        _ => answer(name),
    });
    prop_oneof![
        4 => an_edit().prop_map(Step::Edit),
        1 => Just(Step::Delete),
        4 => said.prop_map(Step::Answer),
        4 => Just(Step::Commit),
    ]
}

/// Answers what is still awaited.
fn settle(world: &mut World) {
    while let Some(object) = world.index.awaited().keys().next().cloned() {
        world.events([answer(&object.name.name)]);
    }
}

proptest! {
    /// Whatever was served meanwhile: once all was read, the newest version counts, as in a process that starts then.
    #[test]
    fn once_all_was_read_the_newest_version_counts(steps in vec(a_step(), 0..24)) {
        let (mut world, mut newest) = (on_demand(), None);
        for step in steps {
            match step {
                Step::Edit(object) => {
                    newest = Some(object.clone());
                    world.index.apply(applied(object));
                }
                Step::Delete => {
                    newest = None;
                    world.index.apply(Event::Deleted(reference(ObjectKind::Ingress, "web")));
                }
                // The source answers for what is wanted only.
                Step::Answer(event) => {
                    let is_wanted = event.object().is_some_and(|object| world.index.wants().contains(&object));
                    if is_wanted {
                        world.index.apply(event);
                    }
                }
                Step::Commit => _ = world.events([]),
            }
        }
        world.events([]);
        settle(&mut world);
        let mut fresh = on_demand();
        fresh.events(newest.map(applied));
        settle(&mut fresh);
        // What is not wanted any more is not read: no version of it counts.
        let is_unwanted = |name: &&&str| !world.index.wants().contains(&the(name));
        let unwanted: Vec<_> =
            SECRETS.iter().filter(is_unwanted).map(|name| Event::Dropped(the(name))).collect();
        world.events(unwanted);
        prop_assert!(world.index.standing_is_empty());
        // A Secret that could not be read again is told of until it is.
        let wanted: Vec<_> = world.index.wants().iter().map(|object| answer(&object.name.name)).collect();
        world.events(wanted);
        assert_same(&world, &fresh);
    }

    /// While nothing is late and all can be read, no edit of a served Ingress shuts it for what was not read.
    #[test]
    fn no_edit_shuts_a_served_ingress(edits in vec((an_edit(), any::<bool>()), 1..12)) {
        let mut world = living_of("1");
        for (edit, is_answered) in edits {
            let is_one = edit.metadata().uid.as_ref() == "1";
            if !is_one {
                continue;
            }
            world.apply(edit);
            prop_assert!(!is_denied_unread(&world));
            if is_answered {
                settle(&mut world);
            }
        }
    }
}

fn living_of(uid: &str) -> World {
    let mut world = on_demand();
    world.apply(open().with(|it| it["metadata"]["uid"] = uid.into()));
    world
}

impl super::super::Index {
    fn standing_is_empty(&self) -> bool {
        !self.standing.has(&name("web"))
    }
}
