//! The real source on real folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::event::{Arrivals, Hold, Input, Receivers};
use crate::objects::{Object, ObjectKind};
use crate::removal::SECOND_LOOK;

mod real;

/// How changes are noticed.
#[derive(Clone, Copy, Debug)]
enum Told {
    ByKernel,
    ByNobody,
}

/// A running source and what it has reported so far.
struct World {
    dir: tempfile::TempDir,
    state: tempfile::TempDir,
    endpoints: Arrivals,
    objects: Arrivals,
    holds: mpsc::Sender<HoldRequest>,
    /// As the index would have it: `true` is good, `false` is broken.
    seen: BTreeMap<String, (Option<Object>, bool)>,
    synced: BTreeSet<&'static str>,
    held: BTreeMap<String, Hold>,
    noted: BTreeMap<String, Vec<String>>,
    batches: Vec<usize>,
    source: tokio::task::JoinSet<Result<(), FolderError>>,
    questions: Barrier,
    /// Rounds of questions that ended, on either channel.
    answered: Vec<u64>,
}

impl World {
    fn start(dir: tempfile::TempDir, state: tempfile::TempDir) -> Self {
        let root = dir.path().to_owned();
        Self::start_at(root, dir, state, Told::ByKernel)
    }

    /// With `root` as the folder, which is in `dir` or leads there.
    fn start_at(root: PathBuf, dir: tempfile::TempDir, state: tempfile::TempDir, told: Told) -> Self {
        let mut source = FolderSource::open(root.clone(), Some(state.path().into())).unwrap();
        match told {
            // Changes are not found by polling: the kernel's notifications must suffice.
            Told::ByKernel => source.pace = None,
            Told::ByNobody => {
                source.disk = Disk::new(root, Watches::none());
                source.pace = Some(Duration::from_millis(20));
            }
        }
        let questions = Barrier::of_cheap_rounds();
        let source = source.with_questions(questions.clone());
        let (inputs, Receivers { endpoints, objects }) = Inputs::channel(8);
        let (holds, asked) = mpsc::channel(8);
        let mut tasks = tokio::task::JoinSet::new();
        let (_, decided) = mpsc::channel(1);
        tasks.spawn(source.run(inputs, asked, decided));
        Self {
            dir,
            state,
            endpoints,
            objects,
            holds,
            seen: BTreeMap::new(),
            synced: BTreeSet::new(),
            held: BTreeMap::new(),
            noted: BTreeMap::new(),
            batches: Vec::new(),
            source: tasks,
            questions,
            answered: Vec::new(),
        }
    }

    /// With one Ingress, so that the folder is not taken for one that is not mounted yet.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "still.yaml", &ingress("still", "a.test"));
        let mut world = Self::start(dir, tempfile::tempdir().unwrap());
        world.until(|it| it.synced.len() == 6).await;
        world
    }

    /// Stops, and starts again over the same folders, as a new process would.
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
                Input::Events(events) => {
                    self.batches.push(events.len());
                    for event in events {
                        self.hear(event, on_endpoints);
                    }
                }
                Input::Forbidden(kind) => panic!("a folder forbids nothing: {kind:?}"),
                Input::CaughtUp(round) => self.answered.push(round),
                Input::Fresh { round, .. } => panic!("round {round} was not asked for"),
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
            Event::Unreadable { .. } | Event::Late(_) | Event::Dropped(_) => {
                panic!("a folder is not read on demand: {event:?}")
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
            Event::Moved { object, location } => {
                assert!(location.contains(':'));
                let kind = object.kind;
                (object, kind)
            }
            Event::Noted { file, problems } => {
                assert!(!on_endpoints);
                self.noted.insert(file.to_string(), problems.iter().map(ToString::to_string).collect());
                return;
            }
            Event::Unstored { .. } => return,
            Event::HoldsListed | Event::Pinned(_) | Event::Unpinned | Event::PinUnreadable { .. } => return,
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

/// A sub-folder with one Ingress, so that it is not taken for one that is not mounted yet.
async fn below(told: Told) -> (PathBuf, World) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    write(&root, "still.yaml", &ingress("still", "a.test"));
    let mut world = World::start_at(root.clone(), dir, tempfile::tempdir().unwrap(), told);
    world.until(|it| it.synced.len() == 6).await;
    (root, world)
}

/// Runs a test both with a kernel that tells of changes and without one.
macro_rules! both_ways {
    ($($name:ident: $test:ident;)*) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            async fn told_by_the_kernel() {
                $test(Told::ByKernel).await;
            }

            #[tokio::test]
            async fn told_by_nobody() {
                $test(Told::ByNobody).await;
            }
        })*
    };
}

both_ways! {
    a_sub_folder_is_replaced_by_rename: replaced;
    a_folder_gives_way_to_a_link_and_to_a_file: gave_way;
    the_folder_is_a_link_that_is_swapped: swapped;
    a_way_to_the_folder_is_swapped: way_swapped;
    a_link_to_a_file_is_followed: file_link;
    a_link_to_a_folder_is_followed: folder_link;
    a_volume_with_folders_in_it_is_followed: deep_volume;
    a_question_waits_for_what_was_written_before: asked;
}

async fn asked(told: Told) {
    let (root, mut world) = below(told).await;
    for edit in 0..20 {
        let host = format!("{edit}.test");
        write(&root, "still.yaml", &ingress("still", &host));
        // Those that ask at the same time share a reading.
        let round = world.questions.ask(None);
        assert_eq!(world.questions.ask(None), round);
        world.until(|it| it.answered.iter().filter(|it| **it == round).count() == 2).await;
        assert_eq!(world.host("still"), Some(&*host));
        world.questions.pass(round);
    }
}

async fn replaced(told: Told) {
    let (root, mut world) = below(told).await;
    for (folder, files) in [("sub", ["one", "both"]), (".next", ["two", "both"])] {
        fs::create_dir(root.join(folder)).unwrap();
        for file in files {
            write(
                &root.join(folder),
                &format!("{file}.yaml"),
                &ingress(file, &format!("{file}{folder}.test")),
            );
        }
    }
    world.until(|it| it.host("one").is_some() && it.host("both") == Some("bothsub.test")).await;
    fs::rename(root.join("sub"), root.join(".prev")).unwrap();
    fs::rename(root.join(".next"), root.join("sub")).unwrap();
    world.until(|it| it.host("one").is_none() && it.host("two").is_some()).await;
    assert_eq!(world.host("both"), Some("both.next.test"));
    write(&root.join("sub"), "two.yaml", &ingress("two", "later.test"));
    world.until(|it| it.host("two") == Some("later.test")).await;
    write(&root.join(".prev"), "one.yaml", &ingress("one", "x.test"));
    fs::remove_dir_all(root.join("sub")).unwrap();
    world.until(|it| it.host("two").is_none() && it.host("both").is_none()).await;
    assert_eq!((world.host("one"), world.host("still")), (None, Some("a.test")));
}

async fn gave_way(told: Told) {
    let (root, mut world) = below(told).await;
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir_all(root.join(".other")).unwrap();
    write(&root.join("sub"), "one.yaml", &ingress("one", "one.test"));
    write(&root.join(".other"), "two.yaml", &ingress("two", "two.test"));
    world.until(|it| it.host("one").is_some()).await;
    fs::rename(root.join("sub"), root.join(".sub")).unwrap();
    symlink(".other", root.join("sub")).unwrap();
    world.until(|it| it.host("one").is_none() && it.host("two").is_some()).await;
    fs::remove_file(root.join("sub")).unwrap();
    write(&root, "sub", "no manifest by its name");
    world.until(|it| it.host("two").is_none()).await;
}

/// Two trees beside the root, which is a link to the first.
async fn releases(told: Told, within: &str) -> (PathBuf, World) {
    let dir = tempfile::tempdir().unwrap();
    for release in ["1", "2"] {
        let tree = dir.path().join(release).join(within);
        fs::create_dir_all(&tree).unwrap();
        write(&tree, "still.yaml", &ingress("still", "a.test"));
        write(&tree, "web.yaml", &ingress("web", &format!("r{release}.test")));
        write(&tree, &format!("only{release}.yaml"), &ingress(&format!("only{release}"), "o.test"));
    }
    symlink("1", dir.path().join("now")).unwrap();
    let (base, root) = (dir.path().to_owned(), dir.path().join("now").join(within));
    let mut world = World::start_at(root, dir, tempfile::tempdir().unwrap(), told);
    world.until(|it| it.synced.len() == 6 && it.host("web") == Some("r1.test")).await;
    (base, world)
}

async fn swap(base: PathBuf, within: &str, mut world: World) {
    symlink("2", base.join("next")).unwrap();
    fs::rename(base.join("next"), base.join("now")).unwrap();
    world.until(|it| it.host("web") == Some("r2.test") && it.host("only1").is_none()).await;
    assert_eq!(world.host("only2"), Some("o.test"));
    write(&base.join("2").join(within), "web.yaml", &ingress("web", "edited.test"));
    world.until(|it| it.host("web") == Some("edited.test")).await;
    write(&base.join("1").join(within), "web.yaml", &ingress("web", "old.test"));
    write(&base.join("2").join(within), "mark.yaml", &ingress("mark", "m.test"));
    world.until(|it| it.host("mark").is_some()).await;
    assert_eq!(world.host("web"), Some("edited.test"), "the old tree is nothing any more");
}

async fn swapped(told: Told) {
    let (base, world) = releases(told, "").await;
    swap(base, "", world).await;
}

async fn way_swapped(told: Told) {
    let (base, world) = releases(told, "deep/er").await;
    swap(base, "deep/er", world).await;
}

async fn file_link(told: Told) {
    let (root, mut world) = below(told).await;
    let outside = root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    write(&outside, "web.yaml", &ingress("web", "b.test"));
    symlink("../outside/web.yaml", root.join("link.yaml")).unwrap();
    world.until(|it| it.host("web") == Some("b.test")).await;
    write(&outside, "web.yaml", &ingress("web", "c.test"));
    world.until(|it| it.host("web") == Some("c.test")).await;
    fs::write(outside.join("web.yaml"), ingress("web", "d.test")).unwrap();
    world.until(|it| it.host("web") == Some("d.test")).await;
    fs::remove_file(outside.join("web.yaml")).unwrap();
    world.until(|it| it.host("web").is_none() && it.noted.contains_key("link.yaml")).await;
    assert_eq!(
        world.noted["link.yaml"],
        ["file link.yaml: is not read: it is a link to nothing (warning) [link.yaml]"]
    );
}

async fn folder_link(told: Told) {
    let (root, mut world) = below(told).await;
    let outside = root.parent().unwrap().join("outside");
    fs::create_dir_all(outside.join("in")).unwrap();
    write(&outside.join("in"), "web.yaml", &ingress("web", "b.test"));
    symlink("..", outside.join("in/circle")).unwrap();
    symlink("../outside", root.join("link")).unwrap();
    world.until(|it| it.host("web") == Some("b.test") && !it.noted.is_empty()).await;
    assert_eq!(
        world.noted["link/in/circle"],
        [
            "file link/in/circle: is not read: it leads to link, which is read already (warning) [link/in/circle]"
        ]
    );
    write(&outside.join("in"), "web.yaml", &ingress("web", "c.test"));
    world.until(|it| it.host("web") == Some("c.test")).await;
    fs::remove_file(root.join("link")).unwrap();
    world.until(|it| it.host("web").is_none()).await;
}

/// A ConfigMap volume with `items[].path: deep/web.yaml`: the folder is a link through `..data`.
async fn deep_volume(told: Told) {
    let (root, mut world) = below(told).await;
    let mount = root.join("mount");
    for (version, host) in [("..1", "b.test"), ("..2", "c.test")] {
        fs::create_dir_all(mount.join(version).join("deep")).unwrap();
        write(&mount.join(version).join("deep"), "web.yaml", &ingress("web", host));
    }
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/deep", mount.join("deep")).unwrap();
    world.until(|it| it.host("web") == Some("b.test")).await;
    symlink("..2", mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    fs::remove_dir_all(mount.join("..1")).unwrap();
    world.until(|it| it.host("web") == Some("c.test")).await;
}

fn ingress(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\nspec:\n  rules:\n  - host: {host}\n---\n"
    )
}

/// As good writers do: to a temporary file, then renamed.
fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    let draft = path.with_file_name(format!(".{}.tmp", path.file_name().unwrap().to_str().unwrap()));
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, &path).unwrap();
}

/// Of two objects in two files one is always on: a reader during the changes never sees both off.
#[tokio::test]
async fn files_that_change_in_turn_are_seen_in_turn() {
    const TURNS: usize = 600;
    let mut world = World::new().await;
    let (on, off) = ("on.test", "off.test");
    write(world.path(), "web1.yaml", &ingress("web1", on));
    write(world.path(), "web2.yaml", &ingress("web2", off));
    world.until(|it| it.host("web1").is_some() && it.host("web2").is_some()).await;
    let dir = world.path().to_owned();
    let writer = tokio::task::spawn_blocking(move || {
        for turn in 0..TURNS {
            let (next, before) = if turn % 2 == 0 { ("web2", "web1") } else { ("web1", "web2") };
            write(&dir, &format!("{next}.yaml"), &ingress(next, on));
            write(&dir, &format!("{before}.yaml"), &ingress(before, off));
            std::thread::sleep(Duration::from_micros((turn as u64 * 7919) % 400));
        }
        write(&dir, "mark.yaml", &ingress("mark", "m.test"));
    });
    let mut dark = 0;
    while world.host("mark").is_none() {
        let batches = world.batches.len();
        world.until(|it| it.batches.len() > batches).await;
        dark += usize::from(world.host("web1") != Some(on) && world.host("web2") != Some(on));
    }
    writer.await.unwrap();
    assert_eq!((dark, world.batches.len() > 20), (0, true), "of {} looks", world.batches.len());
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
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/web.yaml", mount.join("web.yaml")).unwrap();
    world.until(|it| it.host("web") == Some("b.test")).await;
    fs::create_dir(mount.join("..2")).unwrap();
    write(&mount.join("..2"), "web.yaml", &ingress("web", "c.test"));
    symlink("..2", mount.join("..data_tmp")).unwrap();
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
    let kept: Vec<_> = fs::read_dir(world.state.path()).unwrap().flatten().collect();
    let is_ours = |it: &fs::DirEntry| it.metadata().unwrap().permissions().mode() & 0o077 == 0;
    assert!(
        !kept.is_empty() && kept.iter().all(is_ours),
        "a hold may name what its owner keeps to himself: {kept:?}"
    );
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
    // A caller that also prints the sources of an error prints this once.
    assert!(std::error::Error::source(&error).is_none());
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
