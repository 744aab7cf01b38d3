use shared::budget::Budget;
use shared::clock;
use shared::version::{Claim, Lineage, Root, Seq, Version};

use super::*;
use crate::placement::{Compiled, LogPositions, Report};
use crate::serve::message::Hello;
use crate::serve::refusals::Refusals;
use crate::serve::registry::{Parting, Registry, Seat};
use crate::serve::session::Standing;
use crate::store::Store;

fn object(kind: ObjectKind, name: &str) -> ObjectRef {
    ObjectRef { kind, name: ObjectName::new("default", name) }
}

fn places(is_served: bool) -> Placements {
    let mut places = Placements::default();
    let made = |name: &str| Compiled {
        uid: "u".into(),
        resource_version: "7".into(),
        is_served,
        hosts: [Arc::from(format!("{name}.test"))].into(),
        ..Compiled::default()
    };
    let all = [
        (ObjectKind::Ingress, "web"),
        (ObjectKind::Ingress, "api"),
        (ObjectKind::Service, "web"),
        (ObjectKind::Secret, "cert"),
    ];
    let news = all.map(|(kind, name)| (object(kind, name), Report::Compiled(made(name))));
    places.settle(news.into(), LogPositions { config: Seq(1), live: Seq(1), ..LogPositions::default() });
    places
}

fn head() -> Arc<Head> {
    Store::new(Lineage([1; 16]), clock::now()).1.head()
}

/// Problems of the Ingress `web`: fields and reasons.
fn problems(faults: &[(&str, &str)]) -> Problems {
    let subject = Subject::Object(object(ObjectKind::Ingress, "web"));
    let problem = |(field, reason): &(&str, &str)| Problem {
        object: subject.clone(),
        field: (*field).to_owned(),
        severity: Severity::Rejected,
        reason: (*reason).to_owned(),
        location: String::new(),
    };
    let list: Arc<[Problem]> = faults.iter().map(problem).collect();
    if list.is_empty() { Problems::new() } else { Problems::unit(subject, list) }
}

fn connect(registry: &Arc<Registry>, id: &str) -> Seat {
    let hello = Hello { node: id.into(), ..Hello::of(id) };
    let seat = registry.enter(&hello, Claim::random(), "", clock::wall()).unwrap();
    seat.update(&Standing::default(), &Standing::default());
    seat
}

/// The proxy refuses this, each in this version.
fn refuse(seat: &Seat, keys: &[(Kind, &str)], version: u8) {
    let refused = keys.iter().map(|(kind, key)| Refused {
        kind: *kind,
        key: (*key).into(),
        version: Version([version; 16]),
        code: "invalid",
        reason: "expected another".into(),
        serving_last_good: true,
    });
    let refused = Refusals::keep(refused, &Budget::new(1 << 20));
    let root = Some(Root([version; 16]));
    let config = Standing { root, refused_total: refused.len() as u32, refused, ..Standing::default() };
    seat.update(&config, &Standing { root, ..Standing::default() });
}

fn reasons(announcements: &[Announcement]) -> Vec<(String, EventReason)> {
    let mut told: Vec<_> = announcements.iter().map(|it| (it.object.to_string(), it.reason)).collect();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    told
}

const ROUTE: (Kind, &str) = (Kind::Route, "ingress/default/web/web.test");

#[test]
fn a_rejection_is_told_once_with_what_is_served_meanwhile_and_when_it_is_over() {
    let mut announcer = Announcer::default();
    let path = ("spec.rules[0]", "one");
    let first = announcer.rejected(&problems(&[path]), &places(true));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].note, "spec.rules[0]: one. Its last good version is served");
    assert_eq!(
        (first[0].reason, &*first[0].uid, &*first[0].resource_version),
        (EventReason::Rejected, "u", "7")
    );
    assert!(announcer.rejected(&problems(&[path]), &places(true)).is_empty());
    let all: Vec<_> =
        ["a", "b", "c", "d", "e"].iter().map(|reason| ("metadata.annotations[x]", *reason)).collect();
    let other = announcer.rejected(&problems(&all), &places(false));
    assert_eq!(other[0].reason, EventReason::AnnotationParsingFailed);
    let note = "Error parsing annotations: metadata.annotations[x]: a; metadata.annotations[x]: b; \
         metadata.annotations[x]: c; and 2 more. No version of it is served";
    assert_eq!(other[0].note, note);
    assert_eq!(
        reasons(&announcer.rejected(&problems(&[]), &places(true))),
        [("Ingress default/web".to_owned(), EventReason::Accepted)]
    );
    assert!(announcer.rejected(&problems(&[]), &places(true)).is_empty(), "that it is well is told once");
    // Another replica announces the same with the same name.
    assert_eq!(Announcer::default().rejected(&problems(&[path]), &places(true)), first);
}

#[test]
fn what_answers_503_for_an_annotation_is_told_and_what_only_differs_is_not() {
    let fault = |severity, reason: &str| Problem {
        severity,
        reason: reason.to_owned(),
        ..problems(&[("metadata.annotations[x]", "")]).values().next().unwrap()[0].clone()
    };
    let told = |faults: Vec<Problem>| {
        let subject = Subject::Object(object(ObjectKind::Ingress, "web"));
        Announcer::default().rejected(&Problems::unit(subject, faults.into()), &places(true))
    };
    let denied =
        |severity| fault(severity, "expected CIDRs, got \"x\": all paths of this Ingress answer 503");
    let note = "Error parsing annotations: metadata.annotations[x]: expected CIDRs, got \"x\": all paths of this Ingress \
         answer 503. This version is in force";
    for severity in [Severity::Unsupported, Severity::Warning] {
        assert_eq!(told(vec![denied(severity)])[0].note, note, "{severity:?}");
    }
    for severity in [Severity::Unsupported, Severity::Overridden, Severity::Warning] {
        assert!(told(vec![fault(severity, "not honoured yet")]).is_empty(), "{severity:?}");
    }
}

#[test]
fn an_object_that_nobody_has_placed_yet_is_told_later_and_one_that_is_gone_never() {
    let mut announcer = Announcer::default();
    let bad = problems(&[("spec", "one")]);
    assert!(announcer.rejected(&bad, &Placements::default()).is_empty());
    assert_eq!(announcer.rejected(&bad, &places(true)).len(), 1);
    assert!(
        announcer.rejected(&problems(&[]), &Placements::default()).is_empty(),
        "it was deleted, not accepted"
    );
    assert!(announcer.rejected(&problems(&[]), &places(true)).is_empty());
}

#[test]
fn a_note_has_its_size_and_keeps_its_end() {
    let mut announcer = Announcer::default();
    let long = "ä".repeat(2_000);
    let told = announcer.rejected(&problems(&[("spec", &long)]), &places(true));
    assert!(told[0].note.len() <= NOTE && told[0].note.ends_with(". Its last good version is served"));
    let registry = Arc::new(Registry::default());
    let seat = connect(&registry, "n1-1");
    refuse(&seat, &[(Kind::Route, &format!("ingress/default/web/{}", "x".repeat(900)))], 1);
    let told = announcer.refused(&registry.list(), &places(true), &head());
    assert!(told[0].note.len() <= NOTE, "{}", told[0].note.len());
}

#[test]
fn a_refusal_is_its_owner_s_and_told_once_however_many_refuse_how_much() {
    let registry = Arc::new(Registry::default());
    let keys = [
        ROUTE,
        (Kind::Backend, "default/web/80"),
        (Kind::Certificate, "default/cert"),
        (Kind::Host, "web.test"),
        (Kind::Host, "api.test"),
        (Kind::Route, "ingress/default/unknown/a.test"),
        (Kind::Route, "nonsense"),
        (Kind::Settings, "default"),
    ];
    let seats: Vec<_> = (0..1_000).map(|at| connect(&registry, &format!("n{at}-1"))).collect();
    seats.iter().for_each(|seat| refuse(seat, &keys, 1));
    let mut announcer = Announcer::default();
    let first = announcer.refused(&registry.list(), &places(true), &head());
    let expected =
        ["Ingress default/api", "Ingress default/web", "Secret default/cert", "Service default/web"];
    assert_eq!(reasons(&first), expected.map(|object| (object.to_owned(), EventReason::Refused)));
    let web = first.iter().find(|it| it.object == object(ObjectKind::Ingress, "web")).unwrap();
    assert_eq!(
        web.note,
        "proxies cannot serve host web.test: expected another (invalid), and 1 more. They serve the previous version; \
         `firth status ingress default/web` lists them"
    );
    assert!(announcer.refused(&registry.list(), &places(true), &head()).is_empty(), "no news");
    refuse(&seats[0], &[ROUTE], 2);
    let again = announcer.refused(&registry.list(), &places(true), &head());
    assert_eq!(
        reasons(&again),
        [("Ingress default/web".to_owned(), EventReason::Refused)],
        "another version of it"
    );
    assert_eq!(announcer.refused.values().map(|it| it.proxies.len()).max(), Some(REFUSERS));
}

#[test]
fn a_version_that_is_refused_again_after_another_one_is_news() {
    let registry = Arc::new(Registry::default());
    let (one, mut announcer) = (connect(&registry, "n1-1"), Announcer::default());
    for version in [1, 2, 1] {
        refuse(&one, &[ROUTE], version);
        for count in [1, 0] {
            let told = announcer.refused(&registry.list(), &places(true), &head());
            assert_eq!(told.len(), count, "{version}: {told:?}");
        }
    }
}

#[test]
fn recovery_is_announced_only_when_a_refusing_proxy_accepts() {
    let registry = Arc::new(Registry::default());
    let (one, mut two) = (connect(&registry, "n1-1"), connect(&registry, "n2-1"));
    let mut announcer = Announcer::default();
    let look =
        |announcer: &mut Announcer| reasons(&announcer.refused(&registry.list(), &places(true), &head()));
    refuse(&one, &[ROUTE], 1);
    refuse(&two, &[], 1);
    assert_eq!(look(&mut announcer).len(), 1);
    // It is silent, then it reconnects and has not reported its state yet.
    drop(one);
    assert!(look(&mut announcer).is_empty());
    let one = connect(&registry, "n1-1");
    assert!(look(&mut announcer).is_empty());
    refuse(&one, &[ROUTE], 1);
    assert!(look(&mut announcer).is_empty(), "what is known is no news");
    refuse(&one, &[], 2);
    assert_eq!(look(&mut announcer), [("Ingress default/web".to_owned(), EventReason::Served)]);
    assert!(look(&mut announcer).is_empty());
    // The only proxy that refuses disappears for good.
    refuse(&two, &[ROUTE], 3);
    assert_eq!(look(&mut announcer).len(), 1);
    two.part(Parting::Cut);
    two.leave();
    assert!(look(&mut announcer).is_empty(), "nobody has seen it served");
    assert!(announcer.refused.is_empty());
}

/// Other problems next to a fault do not change its announcement.
#[test]
fn a_warning_more_is_no_new_rejection() {
    let mut announcer = Announcer::default();
    let bad = problems(&[("spec", "one")]);
    assert_eq!(announcer.rejected(&bad, &places(true)).len(), 1);
    let (subject, faults) = bad.iter().next().unwrap();
    let warning = Problem { severity: Severity::Warning, reason: "odd".to_owned(), ..faults[0].clone() };
    let more = Problems::unit(subject.clone(), [faults[0].clone(), warning].into());
    assert!(announcer.rejected(&more, &places(true)).is_empty());
}

/// An Event refers to one object by uid. Objects of a folder have no uid.
#[test]
fn nothing_is_told_of_an_object_without_a_uid() {
    let web = object(ObjectKind::Ingress, "web");
    let mut places = Placements::default();
    let made = Report::Compiled(Compiled { is_served: true, ..Compiled::default() });
    places
        .settle(vec![(web, made)], LogPositions { config: Seq(1), live: Seq(1), ..LogPositions::default() });
    assert!(Announcer::default().rejected(&problems(&[("spec", "one")]), &places).is_empty());
}

/// A proxy that does not list all refusals, is diverged or silent may still refuse it.
#[test]
fn that_it_is_served_is_told_once_that_is_known() {
    let root = Some(Root([2; 16]));
    let unnamed = Standing { root, refused_total: 1, ..Standing::default() };
    let astray = Standing { root, diverged: true, ..Standing::default() };
    for said in [Some(unnamed), Some(astray), None] {
        let registry = Arc::new(Registry::default());
        let mut announcer = Announcer::default();
        let mut look = || reasons(&announcer.refused(&registry.list(), &places(true), &head()));
        let mut seat = Some(connect(&registry, "n1-1"));
        refuse(seat.as_ref().unwrap(), &[ROUTE], 1);
        assert_eq!(look().len(), 1);
        match &said {
            Some(config) => {
                let live = Standing { root, ..Standing::default() };
                seat.as_ref().unwrap().update(config, &live);
            }
            None => {
                refuse(seat.as_ref().unwrap(), &[], 2);
                seat = None;
            }
        }
        assert_eq!(look(), [], "{said:?}");
        let seat = seat.unwrap_or_else(|| connect(&registry, "n1-1"));
        refuse(&seat, &[], 2);
        assert_eq!(look(), [("Ingress default/web".to_owned(), EventReason::Served)], "{said:?}");
    }
}
