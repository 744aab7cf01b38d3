//! Which Ingresses are ours (the conformance vectors `ingress-class`).

use serde_json::json;

use super::super::Options;
use super::super::classes::MAX_SHOWN;
use super::fixture::*;
use crate::event::Event;
use crate::objects::{ObjectKind, ObjectRef};
use crate::problem::Subject;
use shared::name::ObjectName;

fn web(class: Option<&str>, annotation: Option<&str>) -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).with(|it| {
        it["metadata"]["annotations"] = match annotation {
            Some(class) => json!({"kubernetes.io/ingress.class": class}),
            None => json!({}),
        };
        it["spec"]["ingressClassName"] = json!(class);
    })
}

#[test]
fn the_field_comes_before_the_annotation() {
    let table = [
        (Some("nginx"), None, true),
        (Some("ours-too"), None, true),
        (Some("other"), None, false),
        (Some("missing"), None, false),
        (Some("missing"), Some("nginx"), false),
        (Some("nginx"), Some("other"), true),
        (None, Some("nginx"), true),
        (None, Some("other"), false),
        (None, Some("NGINX"), false),
        (Some("Nginx"), None, false),
        (None, None, false),
    ];
    for (field, annotation, expected) in table {
        let mut world = World::default();
        world.events([
            applied(class("nginx", "k8s.io/ingress-nginx")),
            applied(class("ours-too", "k8s.io/ingress-nginx")),
            applied(class("other", "example.com/other")),
            applied(web(field, annotation)),
        ]);
        assert_eq!(!world.routes().is_empty(), expected, "{field:?} {annotation:?}");
    }
}

#[test]
fn a_class_brings_its_ingresses_along() {
    let mut world = World::default();
    world.apply(web(Some("nginx"), None));
    assert_eq!(world.routes().len(), 0);
    let commit = world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!(commit.cause, "IngressClass nginx: created");
    assert_eq!(world.routes().len(), 1);
    world.apply(class("nginx", "example.com/other"));
    assert_eq!(world.routes().len(), 0);
    world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!(world.routes().len(), 1);
}

#[test]
fn an_ingress_of_somebody_else_is_not_judged() {
    let mut world = World::default();
    world.apply(class("other", "example.com/other"));
    let commit = world.apply(web(Some("other"), None).rule("a.test", &[("no slash", "echo")]));
    assert!(!commit.problems_changed);
    assert_eq!(commit.cause, "");
    assert!(commit.holds.is_empty());
}

/// The problems of Ingresses, or of the assumed class: fields and reasons.
fn said(world: &World) -> Vec<(String, String)> {
    let all = world.index.problems().values().flat_map(|problems| problems.iter());
    all.map(|problem| (problem.field.clone(), problem.reason.clone())).collect()
}

fn folder() -> World {
    World::with(Options { folder: true, ..options() })
}

#[test]
fn a_class_that_does_not_exist_is_said_and_one_of_somebody_else_is_not() {
    let annotation = "metadata.annotations[kubernetes.io/ingress.class]";
    let table = [
        (
            Some("nignx"),
            None,
            Some(("spec.ingressClassName", "names class nignx, but there is no such IngressClass")),
        ),
        (Some("nignx"), Some("nginx"), Some(("spec.ingressClassName", "names class nignx"))),
        (None, Some("nignx"), Some((annotation, "names class nignx, but there is no such IngressClass"))),
        (None, Some("ours-too"), Some((annotation, "name class ours-too in spec.ingressClassName"))),
        (None, None, Some(("spec.ingressClassName", "no IngressClass is the default"))),
        (Some(""), None, Some(("spec.ingressClassName", "no IngressClass is the default"))),
        (Some(""), Some(""), Some((annotation, "got nothing"))),
        (None, Some(""), Some((annotation, "got nothing"))),
        (Some("other"), None, None),
        (None, Some("other"), None),
        (Some("nginx"), None, None),
        (None, Some("nginx"), None),
    ];
    for start in [World::default, folder] {
        for (field, in_annotation, expected) in table {
            let mut world = start();
            world.events([
                applied(class("nginx", "k8s.io/ingress-nginx")),
                applied(class("ours-too", "k8s.io/ingress-nginx")),
                applied(class("other", "example.com/other")),
                applied(service("echo")),
                applied(web(field, in_annotation)),
            ]);
            let said = said(&world);
            assert_eq!(said.len(), usize::from(expected.is_some()), "{field:?} {in_annotation:?}: {said:?}");
            if let Some((field, reason)) = expected {
                assert!(said[0].0 == field && said[0].1.contains(reason), "{said:?}");
            }
        }
    }
}

#[test]
fn classes_that_may_not_be_read_are_none_that_do_not_exist() {
    let mut world = World::default();
    world.index.set_classes_unreadable(true);
    world.events([applied(service("echo")), applied(web(None, Some("nginx")))]);
    assert_eq!(
        (world.routes().len(), world.index.undecided()),
        (1, None),
        "by annotation, as ingress-nginx does"
    );
    for (field, annotation, is_undecided) in [
        (Some("nginx"), None, true),
        (Some("x"), Some("nginx"), true),
        (None, Some("x"), false),
        (None, None, false),
    ] {
        world.apply(web(field, annotation));
        let undecided = field.filter(|_| is_undecided).map(|field| (name("web"), field.to_owned()));
        assert_eq!(world.index.undecided(), undecided, "{field:?} {annotation:?}");
    }
    world.apply(web(Some("nginx"), None));
    let forbidden = "names class nginx, but the control plane is forbidden to read IngressClasses";
    assert!(said(&world)[0].1.starts_with(forbidden), "{:?}", said(&world));
    assert!(world.routes().is_empty());

    // They may be read now, and this one is not there.
    world.index.set_classes_unreadable(false);
    world.events([]);
    assert!(said(&world)[0].1.contains("no such IngressClass"), "{:?}", said(&world));
    assert_eq!(world.index.undecided(), None);
}

/// As in ingress-nginx without the right to read classes: an Ingress is ours by the annotation, or without one by
/// `--watch-ingress-without-class`, whatever its field names.
#[test]
fn where_classes_are_ignored_the_field_counts_for_nothing() {
    let [nginx, other] = ["nginx", "other"].map(Some);
    let nothing = "names class nginx, which is ignored because --ignore-ingress-classes is on";
    let none = "names no class, and --ignore-ingress-classes is on";
    for (field, annotation, without_class, is_ours, problem) in [
        (None, nginx, false, true, None),
        (other, nginx, false, true, None),
        (nginx, other, false, false, None),
        (None, other, true, false, None),
        (other, None, false, false, None),
        (nginx, None, false, false, Some(nothing)),
        (None, None, false, false, Some(none)),
        (other, None, true, true, None),
        (None, None, true, true, None),
    ] {
        for (folder, has_class) in [(false, false), (true, false), (true, true)] {
            let options =
                Options { ignores_classes: true, watch_without_class: without_class, folder, ..options() };
            let mut world = World::with(options);
            world.events([applied(service("echo")), applied(web(field, annotation))]);
            if has_class {
                world.events([applied(default_class("nginx", "k8s.io/ingress-nginx"))]);
                world.events([applied(class("other", "example.com/other"))]);
            }
            let case = format!("{field:?} {annotation:?} {without_class} {folder} {has_class}");
            assert_eq!(!world.routes().is_empty(), is_ours, "{case}");
            let said = said(&world);
            assert_eq!(said.len(), usize::from(problem.is_some()), "{case}: {said:?}");
            assert!(problem.is_none_or(|problem| said[0].1.starts_with(problem)), "{case}: {said:?}");
            assert_eq!(world.index.undecided(), None);
        }
    }
}

/// ingress-nginx asks whether the annotation is there before it takes an Ingress for one without a class.
#[test]
fn an_empty_annotation_is_not_the_same_as_none() {
    for (annotation, routes) in [(None, 1), (Some(""), 0)] {
        for ignores_classes in [false, true] {
            let mut world = World::with(Options { watch_without_class: true, ignores_classes, ..options() });
            world.events([applied(service("echo")), applied(web(None, annotation))]);
            assert_eq!(world.routes().len(), routes, "{annotation:?} {ignores_classes}");
            assert_eq!(said(&world).len(), 1 - routes, "{annotation:?} {ignores_classes}");
        }
    }
}

#[test]
fn a_faulty_ingress_of_a_class_that_does_not_exist_is_said_too() {
    let mut world = World::default();
    world.apply(web(Some("nignx"), None).rule("a.test", &[("no slash", "echo")]));
    assert!(said(&world)[0].1.contains("no such IngressClass"), "{:?}", said(&world));
}

#[test]
fn a_class_that_cannot_be_read_is_none_that_does_not_exist() {
    let mut world = World::default();
    world.events([applied(service("echo")), applied(web(Some("nginx"), None))]);
    let object = ObjectRef { kind: ObjectKind::IngressClass, name: ObjectName::new("", "nginx") };
    world.events([broken(object, "spec.controller", "expected text, got a number")]);
    let unreadable = "names class nginx, but that IngressClass cannot be read (spec.controller: expected text, got a number)";
    assert!(said(&world)[0].1.starts_with(unreadable), "{:?}", said(&world));
    world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!((world.routes().len(), said(&world).len()), (1, 0));

    // In a folder the missing class is taken for ours, and its problem is reported nevertheless.
    let mut world = folder();
    world.events([applied(service("echo")), applied(web(Some("nginx"), None))]);
    let object = ObjectRef { kind: ObjectKind::IngressClass, name: ObjectName::new("", "nginx") };
    world.events([broken(object.clone(), "spec.controller", "expected text, got a number")]);
    assert_eq!(world.routes().len(), 1);
    let problems = &world.index.problems()[&Subject::Object(object)];
    assert_eq!((problems.len(), &*problems[0].field), (1, "spec.controller"), "{problems:?}");
}

#[test]
fn what_is_said_of_a_class_ends_when_it_comes() {
    let mut world = World::default();
    world.events([applied(service("echo")), applied(web(None, Some("later")))]);
    assert_eq!(said(&world).len(), 1);
    world.apply(class("later", "example.com/other"));
    assert_eq!(said(&world), []);
    world.events([Event::Deleted(ObjectRef {
        kind: ObjectKind::IngressClass,
        name: ObjectName::new("", "later"),
    })]);
    assert_eq!(said(&world).len(), 1);
}

#[test]
fn in_a_folder_without_classes_ours_is_assumed_and_said_once() {
    let mut world = folder();
    let more = ingress("more").rule("b.test", &[("/", "echo")]).with(|it| {
        it["metadata"]["annotations"] = json!({});
        it["spec"]["ingressClassName"] = json!("nginx");
    });
    world.events([applied(service("echo")), applied(web(Some("nginx"), None)), applied(more)]);
    assert_eq!(world.routes().len(), 2);
    let once = said(&world);
    assert!(once.len() == 1 && once[0].1.contains("--ingress-class"), "{once:?}");
    world.apply(web(Some("traefik"), None));
    assert_eq!(world.routes().len(), 1, "only that one name is assumed");

    world.apply(class("other", "example.com/other"));
    assert_eq!(world.routes().len(), 0, "who names classes means what they say");
    assert!(said(&world).iter().all(|(field, _)| field == "spec.ingressClassName"), "{:?}", said(&world));
    world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!(world.routes().len(), 1);
    let mut cluster = World::default();
    cluster.apply(web(Some("nginx"), None));
    assert_eq!(cluster.routes().len(), 0);
}

#[test]
fn whether_a_flag_would_serve_a_missing_class_is_said_anew_when_the_first_class_comes_and_the_last_one_goes()
{
    let mut world = folder();
    world.events([applied(service("echo")), applied(web(Some("traefik"), None))]);
    let names_the_flag = |world: &World| said(world)[0].1.ends_with("or --ingress-class names this class");
    assert!(names_the_flag(&world), "{:?}", said(&world));
    world.apply(class("other", "example.com/other"));
    assert!(!names_the_flag(&world), "{:?}", said(&world));
    world.events([Event::Deleted(ObjectRef {
        kind: ObjectKind::IngressClass,
        name: ObjectName::new("", "other"),
    })]);
    assert!(names_the_flag(&world), "{:?}", said(&world));
}

fn default_class(name: &str, controller: &str) -> crate::objects::Object {
    let mut class = class(name, controller);
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    class.metadata_mut().annotations.insert(annotation.into(), "true".into());
    class
}

#[test]
fn a_folder_obeys_the_default_class() {
    let mut world = folder();
    world.events([applied(service("echo")), applied(web(None, None))]);
    assert_eq!((world.routes().len(), said(&world).len()), (0, 1));
    world.apply(default_class("web", "k8s.io/ingress-nginx"));
    assert_eq!((world.routes().len(), said(&world).len()), (1, 0));
    world.apply(default_class("aaa", "example.com/other"));
    assert_eq!((world.routes().len(), said(&world).len()), (0, 0), "of two the first by name");
    world.apply(class("aaa", "example.com/other"));
    assert_eq!(world.routes().len(), 1);
    world.apply(class("web", "k8s.io/ingress-nginx"));
    assert_eq!((world.routes().len(), said(&world).len()), (0, 1));

    let mut cluster = World::default();
    cluster.events([applied(default_class("web", "k8s.io/ingress-nginx")), applied(web(None, None))]);
    assert_eq!(cluster.routes().len(), 0, "there the API server gives classes");
    assert!(
        said(&cluster)[0].1.contains("before IngressClass web became the default"),
        "{:?}",
        said(&cluster)
    );
}

#[test]
fn without_class_is_ours_where_that_is_asked_for() {
    for folder in [false, true] {
        let mut world = World::with(Options { folder, watch_without_class: true, ..options() });
        world.events([applied(service("echo")), applied(web(None, None))]);
        assert_eq!(world.routes().len(), 1);
        assert_eq!(said(&world).len(), usize::from(folder), "a folder is tried for a cluster");
        world.apply(web(None, Some("other")));
        assert_eq!(world.routes().len(), 0, "a class that is named counts");
    }
}

#[test]
fn a_class_is_ours_by_its_name_where_that_is_asked_for() {
    for (class_by_name, routes) in [(false, 0), (true, 1)] {
        let mut world = World::with(Options { class_by_name, ..options() });
        world.events([applied(service("echo")), applied(class("nginx", "example.com/other"))]);
        world.apply(web(Some("nginx"), None));
        assert_eq!(world.routes().len(), routes);
        world.apply(class("other", "example.com/other"));
        world.apply(web(Some("other"), None));
        assert_eq!(world.routes().len(), 0, "another name is another's");
    }
}

#[test]
fn an_ingress_that_leads_nowhere_is_said() {
    for spec in
        [json!({}), json!({"rules": [{"host": "a.test"}]}), json!({"rules": [{"http": {"paths": []}}]})]
    {
        let mut world = World::default();
        let empty = ingress("web").with(|it| it["spec"] = spec.clone());
        world.apply(empty);
        assert!(said(&world)[0].1.contains("nothing is routed"), "{spec} {:?}", said(&world));
    }
}

#[test]
fn an_ingress_that_redirects_a_host_needs_no_path() {
    for annotation in ["permanent-redirect", "temporal-redirect"] {
        let mut world = World::default();
        let empty = ingress("web").annotation(annotation, "https://b.test");
        world.apply(empty.with(|it| it["spec"] = json!({"rules": [{"host": "a.test"}]})));
        assert_eq!(said(&world), [], "{annotation}");
        world.events([applied(service("echo")), applied(ingress("other").rule("a.test", &[("/", "echo")]))]);
        let [(_, reason)] = &said(&world)[..] else { panic!("{:?}", said(&world)) };
        assert!(reason.contains("nothing is routed"), "the host is another's: {reason}");
    }
}

#[test]
fn without_catch_alls_an_ingress_with_a_default_backend_is_nobodys() {
    let plain = || ingress("web").rule("a.test", &[("/", "echo")]);
    let hostless = || ingress("hostless").rule("", &[("/foo", "echo")]);
    let mut world = World::with(Options { disable_catch_all: true, ..options() });
    world.events([applied(plain()), applied(hostless())]);
    let both = [
        "ingress/default/hostless/_: /foo -> default/echo/80",
        "ingress/default/web/a.test: / -> default/echo/80",
    ];
    assert_eq!(world.routes(), both);
    for catch_all in [plain().default_backend("rest"), ingress("web").default_backend("rest")] {
        world.apply(catch_all);
        assert_eq!(world.routes(), both[..1]);
        assert_eq!(world.problems(ObjectKind::Ingress, "web"), ["warning spec.defaultBackend"]);
    }
    world.apply(plain());
    assert_eq!(world.routes(), both);
}

/// The API server takes `true` alone.
#[test]
fn another_word_than_true_makes_no_default_class() {
    for word in ["1", "True", "yes", "false", ""] {
        let mut world = folder();
        let mut class = class("web", "k8s.io/ingress-nginx");
        let annotation = "ingressclass.kubernetes.io/is-default-class";
        class.metadata_mut().annotations.insert(annotation.into(), word.into());
        world.events([applied(service("echo")), applied(class), applied(web(None, None))]);
        assert_eq!(world.routes().len(), 0, "{word}");
    }
}

#[test]
fn a_default_class_that_becomes_another_controllers_takes_its_ingresses_along() {
    let mut world = folder();
    let ours = || default_class("web", "k8s.io/ingress-nginx");
    world.events([applied(service("echo")), applied(web(None, None)), applied(ours())]);
    assert_eq!(world.routes().len(), 1);
    world.apply(default_class("web", "example.com/other"));
    assert_eq!(world.routes().len(), 0);
    world.apply(ours());
    assert_eq!(world.routes().len(), 1);
}

#[test]
fn of_two_default_classes_one_that_says_when_it_was_made_is_the_newer() {
    let mut world = folder();
    let mut ours = default_class("web", "k8s.io/ingress-nginx");
    ours.metadata_mut().creation_timestamp = "2001-01-01T00:00:00Z".into();
    let others = default_class("aaa", "example.com/other");
    world.events([applied(service("echo")), applied(web(None, None)), applied(others), applied(ours)]);
    assert_eq!(world.routes().len(), 1);
}

/// A name is a tenant's text, whatever a folder's file says.
#[test]
fn a_name_of_a_class_is_repeated_bounded_and_without_what_a_terminal_would_obey() {
    let reason = |class: &str| {
        let mut world = World::default();
        world.apply(web(Some(class), None));
        said(&world)[0].1.clone()
    };
    assert!(reason("a\u{1b}[2Jb").contains("\"a\\u{1b}[2Jb\""), "{}", reason("a\u{1b}[2Jb"));
    let long = reason(&"x".repeat(5_000));
    assert!(long.contains(&"x".repeat(MAX_SHOWN)) && long.len() < 500, "{long}");
}
