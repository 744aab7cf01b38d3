//! How the watches work together: what is requested for each kind, and which responses are trusted.

use serde_json::json;

use super::*;
use crate::event::{Event, Input, Receivers};

pub(crate) mod fake;

use self::fake::{Fake, Reply, status};

/// A cluster that has nothing and reads lists in pages.
fn nothing() -> Fake {
    Fake::new(|asked| {
        if asked.query.contains_key("sendInitialEvents") {
            return status(422);
        }
        if asked.query.contains_key("watch") {
            return Reply::Silence;
        }
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": []});
        Reply::Text(200, list.to_string())
    })
}

fn plural(kind: ObjectKind) -> String {
    collection::path(kind, None)
}

/// An API server that answers quickly with empty lists, as one does whose store was lost. Checks how many lists of each
/// kind were read before the kind was taken for complete.
#[tokio::test]
async fn nothing_is_believed_of_three_kinds_before_a_second_list_says_so() {
    for reads_all in [false, true] {
        Box::pin(nothing_is_believed(reads_all)).await;
    }
}

async fn nothing_is_believed(reads_all: bool) {
    let server = nothing();
    let source = KubeSource {
        client: server.client(),
        options: KubeOptions {
            kubeconfig: None,
            watch_namespace: None,
            ignores_classes: !reads_all,
            watches_namespaces: reads_all,
            configmaps: vec![ObjectName::new("ingress-nginx", "controller")],
            decisions_namespace: "firth".into(),
            statuses: None,
        },
        freshness: Freshness::default(),
        barrier: Barrier::default(),
    };
    let (inputs, Receivers { mut endpoints, mut objects }) = Inputs::channel(8);
    let (_wants, wanted) = channel::channel(Wants::default());
    let (_holds, held) = mpsc::channel(1);
    let (_pins, decided) = mpsc::channel(1);
    let mut running = std::pin::pin!(source.run(inputs, wanted, held, decided, None));
    let (mut synced, mut holds_listed) = (Vec::new(), 0);
    while synced.len() < ObjectKind::ALL.len() {
        let input = tokio::select! {
            input = endpoints.recv() => input,
            input = objects.recv() => input,
            ended = &mut running => panic!("{ended:?}"),
        };
        let kind = match input {
            Some(Input::Synced(kind)) => kind,
            Some(Input::Events(events)) if events == [Event::HoldsListed] => {
                holds_listed += 1;
                continue;
            }
            other => panic!("{other:?}: there is nothing"),
        };
        let is_list = |asked: &&fake::Asked| asked.path == plural(kind) && !asked.query.contains_key("watch");
        synced.push((kind, server.asked().iter().filter(is_list).count()));
    }
    synced.sort();
    let twice = |kind| matches!(kind, ObjectKind::Ingress | ObjectKind::Service | ObjectKind::EndpointSlice);
    for (kind, lists) in &synced {
        // ConfigMaps are also read by name and by label.
        assert_eq!(*lists >= 2, twice(*kind), "{lists} lists of {kind:?}");
        let is_read = reads_all || !matches!(kind, ObjectKind::Namespace | ObjectKind::IngressClass);
        // ConfigMaps and Secrets are read by names and labels, and by metadata.
        assert_eq!(*lists > 0, is_read, "{lists} lists of {kind:?}");
    }
    decisions_are_asked_for_by_their_label(&server.asked());
    assert!(holds_listed >= 2, "{holds_listed}: holds of Secrets and of all else");
}

/// Other objects in the namespace are not decisions: an application's ConfigMap, another tool's Secret.
fn decisions_are_asked_for_by_their_label(asked: &[fake::Asked]) {
    for kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
        let path = collection::path(kind, Some("firth"));
        let of_kind: Vec<_> = asked.iter().filter(|it| it.path == path).collect();
        assert!(of_kind.iter().any(|it| it.query.contains_key("watch")), "{kind:?} are watched");
        assert!(of_kind.iter().any(|it| !it.query.contains_key("watch")), "{kind:?} are listed");
        for it in of_kind {
            let label = it.query["labelSelector"].as_str();
            let is_pin = kind == ObjectKind::Secret && label == "firth.dev/decision=pin";
            assert!(is_pin || label == "firth.dev/decision=hold", "{it:?}");
        }
    }
    let secrets = asked.iter().filter(|it| it.path == plural(ObjectKind::Secret));
    for it in secrets {
        assert_eq!(it.query["fieldSelector"], NOT_HELM, "{it:?}");
    }
}

/// Whatever is missing would change what is served; without IngressClasses Ingresses may be taken by annotation.
#[tokio::test]
async fn a_kind_that_may_not_be_read_is_not_taken_for_empty() {
    for kind in ObjectKind::ALL {
        let (inputs, Receivers { endpoints: mut slices, objects: mut others }) = Inputs::channel(1);
        let sender = Sender::new(inputs, Freshness::default());
        let mut sink = Objects::new(sender, kind);
        let without = sink.forbidden().await.unwrap();
        let mut said = || slices.try_recv().ok().or_else(|| others.try_recv().ok());
        let expected = match kind {
            ObjectKind::IngressClass => (follow::Without::ByAnnotation, Some(Input::Forbidden(kind))),
            _ => (follow::Without::Waits, None),
        };
        assert_eq!((without, said()), expected, "{kind:?}");
        assert_eq!((sink.forbidden().await.unwrap(), said()), (without, None), "once");
        sink.synced().await.unwrap();
        assert_eq!(said(), Some(Input::Synced(kind)), "it may be read now");
        assert_eq!((sink.forbidden().await.unwrap(), said()), (follow::Without::Stays, None), "{kind:?}");
    }
}
