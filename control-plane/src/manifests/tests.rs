//! The real source on real folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::event::Hold;
use crate::objects::{Object, ObjectKind};
use crate::removal::SECOND_LOOK;

/// A running source and what it has said so far.
struct World {
    dir: tempfile::TempDir,
    state: tempfile::TempDir,
    endpoints: mpsc::Receiver<Input>,
    objects: mpsc::Receiver<Input>,
    holds: mpsc::Sender<HoldRequest>,
    _wants: watch::Sender<Wants>,
    /// As the index would have it: `true` is good, `false` is broken.
    seen: BTreeMap<String, (Option<Object>, bool)>,
    synced: BTreeSet<&'static str>,
    held: BTreeMap<String, Hold>,
    batches: Vec<usize>,
    source: tokio::task::JoinSet<Result<(), FolderError>>,
}

impl World {
    fn start(dir: tempfile::TempDir, state: tempfile::TempDir) -> Self {
        let source = FolderSource::open(dir.path().into(), Some(state.path().into())).unwrap();
        let (to_endpoints, endpoints) = mpsc::channel(8);
        let (to_objects, objects) = mpsc::channel(8);
        let (holds, asked) = mpsc::channel(8);
        let (wants, wanted) = watch::channel(Wants::default());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(source.run(Inputs { endpoints: to_endpoints, objects: to_objects }, wanted, asked));
        Self {
            dir,
            state,
            endpoints,
            objects,
            holds,
            _wants: wants,
            seen: BTreeMap::new(),
            synced: BTreeSet::new(),
            held: BTreeMap::new(),
            batches: Vec::new(),
            source: tasks,
        }
    }

    /// With one Ingress, so that the folder is not taken for one that is not there yet.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "still.yaml", &ingress("still", "a.test"));
        let mut world = Self::start(dir, tempfile::tempdir().unwrap());
        world.until(|it| it.synced.len() == 6).await;
        world
    }

    /// Stops, as a process does, and starts anew over the same folders.
    async fn restart(mut self) -> Self {
        self.source.shutdown().await;
        let mut world = Self::start(self.dir, self.state);
        world.until(|it| it.synced.len() == 6).await;
        world
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn until(&mut self, met: impl Fn(&Self) -> bool) {
        while !met(self) {
            let input = timeout(Duration::from_secs(20), async {
                tokio::select! {
                    Some(input) = self.endpoints.recv() => (true, input),
                    Some(input) = self.objects.recv() => (false, input),
                    Some(ended) = self.source.join_next() => panic!("the source ended: {ended:?}"),
                }
            });
            let (on_endpoints, input) =
                input.await.unwrap_or_else(|_| panic!("nothing came any more: {:?}", self.seen));
            match input {
                Input::Synced(kind) => {
                    assert_eq!(on_endpoints, kind == ObjectKind::EndpointSlice);
                    assert!(self.synced.insert(kind.as_str()));
                }
                Input::Settled(_) => panic!("nothing was wanted"),
                Input::Events(events) => {
                    self.batches.push(events.len());
                    for event in events {
                        self.hear(event, on_endpoints);
                    }
                }
            }
        }
    }

    fn hear(&mut self, event: Event, on_endpoints: bool) {
        let (name, kind) = match event {
            Event::Applied { object, location } => {
                assert!(location.contains(':'));
                let name = object.reference();
                let kind = name.kind;
                self.seen.insert(name.to_string(), (Some(object), true));
                (name, kind)
            }
            Event::Broken { object, problem, .. } => {
                assert!(problem.location.contains(':'), "{problem:?}");
                let kind = object.kind;
                self.seen.entry(object.to_string()).or_default().1 = false;
                (object, kind)
            }
            Event::Deleted(object) => {
                let kind = object.kind;
                assert!(self.seen.remove(&object.to_string()).is_some());
                (object, kind)
            }
            Event::Held(hold) => {
                assert!(!on_endpoints);
                self.held.insert(hold.object.reference().to_string(), hold);
                return;
            }
            Event::Released(object) => {
                self.held.remove(&object.to_string());
                return;
            }
        };
        assert_eq!(on_endpoints, kind == ObjectKind::EndpointSlice, "{name}");
    }

    fn host(&self, name: &str) -> Option<&str> {
        match self.seen.get(&format!("Ingress default/{name}")) {
            Some((Some(Object::Ingress(it)), true)) => Some(&it.spec.rules[0].host),
            _ => None,
        }
    }

    fn is_broken(&self, name: &str) -> bool {
        self.seen.get(&format!("Ingress default/{name}")).is_some_and(|(_, good)| !good)
    }
}

fn ingress(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\nspec:\n  rules:\n  - host: {host}\n---\n"
    )
}

/// As good writers do: beside, then renamed into place.
fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    let draft = path.with_file_name(format!(".{}.tmp", path.file_name().unwrap().to_str().unwrap()));
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, &path).unwrap();
}

#[tokio::test]
async fn files_come_change_and_go() {
    let mut world = World::new().await;
    write(world.path(), "web.yaml", &ingress("web", "b.test"));
    world.until(|it| it.host("web") == Some("b.test")).await;
    write(world.path(), "web.yaml", &ingress("web", "c.test"));
    world.until(|it| it.host("web") == Some("c.test")).await;
    fs::rename(world.path().join("web.yaml"), world.path().join("other.yaml")).unwrap();
    write(world.path(), "mark.yaml", &ingress("mark", "m.test"));
    world.until(|it| it.host("mark").is_some()).await;
    assert_eq!(world.host("web"), Some("c.test"), "a renamed file has the same objects");
    fs::remove_file(world.path().join("other.yaml")).unwrap();
    world.until(|it| it.host("web").is_none()).await;
    assert_eq!(world.host("still"), Some("a.test"));
}

#[tokio::test]
async fn a_file_written_in_place_is_read_when_it_is_closed() {
    let mut world = World::new().await;
    let path = world.path().join("web.yaml");
    fs::write(&path, ingress("web", "b.test")).unwrap();
    world.until(|it| it.host("web") == Some("b.test")).await;
    let text = ingress("web", "c.test") + &ingress("more", "d.test");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&text.as_bytes()[..40]).unwrap();
    write(world.path(), "mark.yaml", &ingress("mark", "m.test"));
    world.until(|it| it.host("mark").is_some()).await;
    assert_eq!(world.host("web"), Some("b.test"), "half a file is not looked at");
    file.write_all(&text.as_bytes()[40..]).unwrap();
    drop(file);
    world.until(|it| it.host("web") == Some("c.test") && it.host("more") == Some("d.test")).await;
}

#[tokio::test]
async fn a_bad_file_keeps_what_it_had() {
    let mut world = World::new().await;
    write(world.path(), "web.yaml", &(ingress("web", "b.test") + &ingress("more", "c.test")));
    world.until(|it| it.host("more").is_some()).await;
    write(world.path(), "web.yaml", "{ this is nothing");
    world.until(|it| it.is_broken("web") && it.is_broken("more")).await;
    let bad = ingress("web", "b.test").replace("rules:", "rules: 7\n  other:") + &ingress("more", "d.test");
    write(world.path(), "web.yaml", &bad);
    world.until(|it| it.is_broken("web") && it.host("more") == Some("d.test")).await;
    write(world.path(), "web.yaml", &ingress("web", "e.test"));
    world.until(|it| it.host("web") == Some("e.test") && !it.seen.contains_key("Ingress default/more")).await;
}

#[tokio::test]
async fn sub_folders_come_and_go_and_dot_files_are_nothing() {
    let mut world = World::new().await;
    fs::create_dir_all(world.path().join("a/b")).unwrap();
    write(&world.path().join("a/b"), "deep.yml", &ingress("deep", "b.test"));
    write(
        &world.path().join("a"),
        "flat.json",
        "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s\"}}",
    );
    world.until(|it| it.host("deep").is_some() && it.seen.contains_key("Service default/s")).await;
    write(&world.path().join("a/b"), "deep.yml", &ingress("deep", "c.test"));
    world.until(|it| it.host("deep") == Some("c.test")).await;
    fs::write(world.path().join("a/.hidden.yaml"), ingress("hidden", "h.test")).unwrap();
    fs::rename(world.path().join("a"), world.path().join(".a")).unwrap();
    world.until(|it| it.host("deep").is_none() && !it.seen.contains_key("Service default/s")).await;
    fs::rename(world.path().join(".a"), world.path().join("c")).unwrap();
    world.until(|it| it.host("deep") == Some("c.test")).await;
    assert_eq!(world.host("hidden"), None);
}

#[tokio::test]
async fn a_mounted_config_map_is_followed() {
    let mut world = World::new().await;
    let mount = world.path().join("mount");
    fs::create_dir_all(mount.join("..1")).unwrap();
    write(&mount.join("..1"), "web.yaml", &ingress("web", "b.test"));
    std::os::unix::fs::symlink("..1", mount.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/web.yaml", mount.join("web.yaml")).unwrap();
    world.until(|it| it.host("web") == Some("b.test")).await;
    fs::create_dir(mount.join("..2")).unwrap();
    write(&mount.join("..2"), "web.yaml", &ingress("web", "c.test"));
    std::os::unix::fs::symlink("..2", mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    world.until(|it| it.host("web") == Some("c.test")).await;
    fs::remove_file(mount.join("web.yaml")).unwrap();
    world.until(|it| it.host("web").is_none()).await;
}

#[tokio::test]
async fn a_hold_is_read_back_and_outlives_the_process() {
    let mut world = World::new().await;
    write(world.path(), "web.yaml", &ingress("web", "b.test"));
    world.until(|it| it.host("web").is_some()).await;
    let (Some(object), _) = world.seen["Ingress default/web"].clone() else { panic!("an object") };
    let name = object.reference();
    world.holds.send(HoldRequest::Write(Hold { object: object.clone() })).await.unwrap();
    world.until(|it| it.held.len() == 1).await;
    write(world.path(), "web.yaml", "{");
    world.until(|it| it.is_broken("web")).await;

    let mut world = world.restart().await;
    assert_eq!(world.held["Ingress default/web"].object, object);
    assert!(world.is_broken("web"), "that the file had it is on record too");
    world.holds.send(HoldRequest::Erase(name)).await.unwrap();
    world.until(|it| it.held.is_empty()).await;
    let world = world.restart().await;
    assert!(world.held.is_empty());
}

#[tokio::test]
async fn an_empty_folder_is_believed_as_soon_as_it_fills() {
    let mut world = World::start(tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tokio::task::yield_now().await;
    let began = Instant::now();
    write(world.path(), "web.yaml", &ingress("web", "b.test"));
    world.until(|it| it.synced.len() == 6).await;
    assert!(world.host("web").is_some() && began.elapsed() < SECOND_LOOK);
}

#[tokio::test]
async fn an_absent_folder_is_an_error_that_names_it() {
    let error = FolderSource::open("/no/such/folder".into(), None).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn ten_thousand_services_in_one_file_and_one_edit() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for at in 0..10_000 {
        text += &format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {{\"name\": \"svc{at}\", \"namespace\": \"bench\"}}, \"spec\": {{\"ports\": [{{\"port\": 80}}]}}}}\n---\n\
             {{\"apiVersion\": \"discovery.k8s.io/v1\", \"kind\": \"EndpointSlice\", \"metadata\": {{\"name\": \"svc{at}-0\", \"namespace\": \"bench\"}}, \"endpoints\": [{{\"addresses\": [\"10.0.0.1\"]}}]}}\n---\n"
        );
    }
    write(dir.path(), "static.yaml", &text);
    write(dir.path(), "one.yaml", &ingress("web", "a.test"));
    let mut world = World::start(dir, tempfile::tempdir().unwrap());
    world.until(|it| it.synced.len() == 6).await;
    assert_eq!(world.seen.len(), 20_001);
    world.batches.clear();
    write(world.path(), "static.yaml", &text.replacen("10.0.0.1", "10.0.0.2", 1));
    world.until(|it| !it.batches.is_empty()).await;
    write(world.path(), "one.yaml", &ingress("web", "b.test"));
    world.until(|it| it.host("web") == Some("b.test")).await;
    assert_eq!(world.batches, [1, 1], "only what differs is told");
}
