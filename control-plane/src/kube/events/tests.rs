use proptest::prelude::{any, proptest};
use shared::name::ObjectName;

use super::*;
use crate::kube::tests::fake::{Fake, Reply, status};
use crate::objects::ObjectKind;

fn announcement(namespace: &str, name: &str) -> Announcement {
    Announcement {
        object: ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new(namespace, name) },
        uid: "u-1".into(),
        resource_version: "7".into(),
        reason: EventReason::Refused,
        note: "proxies cannot serve it".to_owned(),
        same: "invalid".to_owned(),
    }
}

/// What the API server was asked when all of this was to be said, and an hour went by.
async fn asked(
    reply: impl Fn(&crate::kube::tests::fake::Asked) -> Reply + Send + Sync + 'static,
    announcements: Vec<Announcement>,
) -> Vec<crate::kube::tests::fake::Asked> {
    let fake = Fake::new(reply);
    let (sender, receiver) = mpsc::channel(64);
    let run = run(fake.client(), "pod-1".to_owned(), receiver);
    let all = async {
        for announcement in announcements {
            sender.send(announcement).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3_600)).await;
    };
    tokio::select! {
        _ = run => panic!("it never ends"),
        () = all => {}
    }
    fake.asked()
}

fn created() -> Reply {
    Reply::Text(201, "{}".to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_event_is_about_its_object() {
    let asked = asked(|_| created(), vec![announcement("default", "web")]).await;
    let [one] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(
        (&one.method, &*one.path),
        (&Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events")
    );
    let about = &one.body["regarding"];
    assert_eq!(
        (&about["kind"], &about["name"], &about["uid"]),
        (&"Ingress".into(), &"web".into(), &"u-1".into())
    );
    assert_eq!(about["apiVersion"], "networking.k8s.io/v1");
    assert_eq!((&one.body["type"], &one.body["reason"]), (&"Warning".into(), &"Refused".into()));
    assert_eq!(one.body["note"], "proxies cannot serve it");
    assert_eq!(one.body["reportingInstance"], "pod-1");
    let name = one.body["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, announcement("default", "web").name(), "any replica calls it so");
    let long = announcement("default", &"x".repeat(253)).name();
    assert_eq!(long.len(), 253);
}

#[tokio::test(start_paused = true)]
async fn where_events_may_not_be_written_it_is_asked_once_and_others_are_told() {
    let forbidden = |asked: &crate::kube::tests::fake::Asked| match asked.path.contains("/shut/") {
        true => status(403),
        false => created(),
    };
    let mut all: Vec<_> = (0..40).map(|at| announcement("shut", &at.to_string())).collect();
    all.push(announcement("open", "web"));
    let asked = asked(forbidden, all).await;
    let to = |namespace: &str| asked.iter().filter(|it| it.path.contains(namespace)).count();
    assert_eq!((to("/shut/"), to("/open/")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_there_is_not_written_again_and_one_that_fails_is() {
    let asked_of_one = asked(|_| status(409), vec![announcement("default", "web")]).await;
    assert_eq!(asked_of_one.len(), 1);
    let asked_of_one = asked(|_| status(500), vec![announcement("default", "web")]).await;
    assert_eq!(asked_of_one.len(), 3);
    let invalid = asked(|_| status(422), vec![announcement("default", "web")]).await;
    assert_eq!(invalid.len(), 1);
}

/// Who would be told is deleted, and elsewhere Events may be written.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_is_not_one_where_events_may_not_be_written() {
    let message = "unable to create new content in namespace gone because it is being terminated";
    let text = serde_json::json!({"kind": "Status", "status": "Failure", "message": message, "code": 403});
    let all = (0..3).map(|at| announcement("gone", &at.to_string())).collect();
    assert_eq!(asked(move |_| Reply::Text(403, text.to_string()), all).await.len(), 3);
}

/// The API server deletes Events after an hour.
#[tokio::test(start_paused = true)]
async fn one_that_is_repeated_is_counted_and_written_anew_where_it_is_gone() {
    for (is_there, expected) in
        [(true, &[Method::POST, Method::PATCH][..]), (false, &[Method::POST, Method::PATCH, Method::POST])]
    {
        let fake = Fake::new(move |asked| match asked.method {
            Method::PATCH if !is_there => status(404),
            Method::PATCH => Reply::Text(200, "{}".to_owned()),
            _ => created(),
        });
        let (sender, receiver) = mpsc::channel(64);
        let run = run(fake.client(), "pod-1".to_owned(), receiver);
        let twice = async {
            for _ in 0..2 {
                sender.send(announcement("default", "web")).await.unwrap();
                tokio::time::sleep(Duration::from_secs(3_600)).await;
            }
        };
        tokio::select! {
            _ = run => panic!("it never ends"),
            () = twice => {}
        }
        let asked = fake.asked();
        let methods: Vec<_> = asked.iter().map(|asked| &asked.method).collect();
        assert_eq!(methods, Vec::from_iter(expected), "{is_there}");
        let event = format!("{}/{}", asked[0].path, announcement("default", "web").name());
        assert_eq!((&asked[1].path, &asked[1].body["series"]["count"]), (&event, &2.into()));
    }
}

#[test]
fn a_name_that_is_cut_ends_with_a_letter_or_a_digit() {
    for end in ["", "-", ".", "--", "x."] {
        let kept = "a".repeat(NAME - end.len());
        let event = announcement("shop", &format!("{kept}{end}b-1")).name();
        assert!(is_subdomain(&event) && event.starts_with(&kept), "{event}");
    }
}

/// The clock that is paused is tokio's; the pace is counted on it too.
#[tokio::test(start_paused = true)]
async fn five_thousand_are_said_at_five_a_second() {
    let all = (0..5_000).map(|at| announcement("default", &at.to_string())).collect();
    let fake = Fake::new(|_| created());
    let (sender, receiver) = mpsc::channel(64);
    let run = run(fake.client(), "pod-1".to_owned(), receiver);
    let minute = async {
        let all: Vec<Announcement> = all;
        for announcement in all {
            sender.send(announcement).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        _ = run => panic!("it never ends"),
        () = minute => {}
    }
    let count = fake.asked().len();
    assert!((200..=330).contains(&count), "{count}");
}

/// As the API server has it (RFC 1123).
fn is_subdomain(name: &str) -> bool {
    let is_edge = |it: Option<&u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let is_label = |label: &[u8]| {
        let mut inner = label.iter();
        is_edge(label.first()) && is_edge(label.last()) && inner.all(|it| *it == b'-' || is_edge(Some(it)))
    };
    name.len() <= 253 && name.as_bytes().split(|it| *it == b'.').all(is_label)
}

proptest! {
    #[test]
    fn an_event_of_whatever_object_has_a_name_that_the_server_takes(
        name in "[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?([.]([a-z0-9]|[a-z0-9]-{1,5}[a-z0-9])){0,150}",
        length in 1..=253_usize,
        fills in any::<bool>(),
    ) {
        let name = if fills { format!("{}{name}", "x".repeat(230)) } else { name };
        let name = name[..length.min(name.len())].trim_end_matches(['-', '.']);
        assert!(is_subdomain(name), "{name}");
        let event = announcement("shop", name).name();
        assert!(is_subdomain(&event), "{event}");
    }
}
