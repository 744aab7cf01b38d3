use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

#[test]
fn places() {
    let root = FilePath::new("/srv/.hidden/conf");
    let shown = |path: &str| match place(root, FilePath::new(path)) {
        Some(Place::Shown(name)) => Some(name.to_string()),
        Some(Place::Mount(folder)) => Some(format!("{folder}!")),
        None => None,
    };
    assert_eq!(shown("/srv/.hidden/conf/a/b.yaml").as_deref(), Some("a/b.yaml"));
    assert_eq!(shown("/srv/.hidden/conf/.b.yaml.tmp"), None);
    assert_eq!(shown("/srv/.hidden/conf/.git/b.yaml"), None);
    assert_eq!(shown("/srv/.hidden/conf"), None);
    assert_eq!(shown("/srv/other"), None);
    assert_eq!(shown("/srv/.hidden/conf/m/..data").as_deref(), Some("m!"));
    assert_eq!(shown("/srv/.hidden/conf/..data").as_deref(), Some("!"));
    assert_eq!(shown("/srv/.hidden/conf/..data_tmp"), None);
}

/// The state of an observer that receives every scan.
#[derive(Default)]
struct Follower(BTreeMap<Path, Raw>);

impl Follower {
    /// What a scan lacks is removed at once, without a second look.
    fn hear(&mut self, scan: Scan) {
        self.0.extend(scan.found);
        self.0.retain(|_, raw| *raw != Raw::Gone);
        if let Some(whole) = scan.whole {
            self.0.retain(|path, _| whole.present.contains(path));
        }
    }

    /// Until nothing is left to settle.
    fn poll(&mut self, disk: &mut Disk) {
        for _ in 0..2 {
            self.hear(poll(disk));
        }
    }
}

fn poll(disk: &mut Disk) -> Scan {
    let walk = disk.begin_poll();
    disk.end_poll(walk().unwrap()).unwrap()
}

/// What a fresh start reads.
fn afresh(root: &FilePath) -> BTreeMap<Path, Raw> {
    Disk::new(root.to_owned(), Watches::none()).scan().unwrap().found
}

#[test]
fn a_file_that_is_being_written_is_read_once_it_is_still() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "one").unwrap();
    let mut disk = Disk::new(dir.path().to_owned(), Watches::none());
    assert_eq!(disk.scan().unwrap().found.len(), 1);
    fs::write(&file, "one and").unwrap();
    assert_eq!(poll(&mut disk).found, ScannedFiles::new(), "it may not be complete");
    fs::write(&file, "one and two").unwrap();
    assert_eq!(poll(&mut disk).found, ScannedFiles::new(), "it was not");
    assert_eq!(poll(&mut disk).found["a.yaml"], Raw::Text("one and two".to_owned()));

    fs::remove_file(&file).unwrap();
    let whole = poll(&mut disk).whole.unwrap();
    assert!(whole.present.contains("a.yaml"), "it may be replaced");
    let whole = poll(&mut disk).whole.unwrap();
    assert!(!whole.present.contains("a.yaml"));
}

/// The walk did not find it, as the one before did not.
#[test]
fn what_was_looked_at_since_a_walk_is_not_taken_for_what_the_walk_saw() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "one").unwrap();
    let mut disk = Disk::new(dir.path().to_owned(), Watches::none());
    disk.scan().unwrap();
    fs::remove_file(&file).unwrap();
    poll(&mut disk);
    let tree = disk.begin_poll()().unwrap();
    fs::write(&file, "two").unwrap();
    let touched = BTreeMap::from([(file, Touched::Content)]);
    assert_eq!(disk.look(&touched).unwrap().found["a.yaml"], Raw::Text("two".to_owned()));
    let Scan { found, whole } = disk.end_poll(tree).unwrap();
    assert_eq!(found, ScannedFiles::new());
    assert_eq!(whole.unwrap().present, BTreeSet::from(["a.yaml".into()]));
}

/// Each comparison reads once more what was written a moment before.
#[test]
fn what_is_written_between_its_stamp_and_its_text_is_left_until_it_is_still() {
    let dir = tempfile::tempdir().unwrap();
    let (file, name) = (dir.path().join("a.yaml"), Path::from("a.yaml"));
    fs::write(&file, "one").unwrap();
    let mut disk = Disk::new(dir.path().to_owned(), Watches::none());
    assert_eq!(disk.scan().unwrap().found.len(), 1);
    let stamp = disk.known_at(&name).unwrap().stamp;
    let mut found = ScannedFiles::new();
    fs::write(&file, "").unwrap();
    let now = Stamp::of(&fs::metadata(&file).unwrap());
    assert_eq!(disk.read_still(&name, &stamp, &mut found), Err(Some(now)));
    fs::remove_file(&file).unwrap();
    assert_eq!(disk.read_still(&name, &stamp, &mut found), Err(None));
    assert_eq!((found, disk.known_at(&name).unwrap().stamp), (ScannedFiles::new(), stamp));
    fs::write(&file, "two").unwrap();
    let now = Stamp::of(&fs::metadata(&file).unwrap());
    let mut found = ScannedFiles::new();
    assert_eq!(disk.read_still(&name, &now, &mut found), Ok(()));
    assert_eq!(found[&name], Raw::Text("two".to_owned()));
}

#[test]
fn a_change_within_one_tick_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "one").unwrap();
    let mut disk = Disk::new(dir.path().to_owned(), Watches::none());
    disk.scan().unwrap();
    fs::write(&file, "two").unwrap();
    // As if the clock of the file system had not ticked in between.
    let stamp = Stamp::of(&fs::metadata(&file).unwrap());
    disk.known.get_mut("a.yaml").unwrap().as_mut().unwrap().stamp = stamp;
    assert_eq!(poll(&mut disk).found["a.yaml"], Raw::Text("two".to_owned()));
}

#[test]
fn nothing_is_read_twice_and_a_touch_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "one").unwrap();
    let mut disk = Disk::new(dir.path().to_owned(), Watches::none());
    disk.scan().unwrap();
    assert_eq!(disk.scan().unwrap().found, ScannedFiles::new());
    fs::write(&file, "one").unwrap();
    assert_eq!(disk.scan().unwrap().found, ScannedFiles::new(), "it says the same");
}

/// What may happen to a folder. Places are numbers, so that events interact.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Rewrite(usize, u8),
    Remove(usize),
    Rename(usize, usize),
    Link(usize, usize),
    /// Makes the root, itself a link, lead to another tree.
    Swap(u8),
    /// Begins a comparison and walks, or ends one.
    Walk,
    Compare,
    /// Tells of some places, as the kernel might or might not.
    Tell(Vec<usize>),
}

const PLACES: [&str; 10] =
    ["a.yaml", "b.yaml", "d", "d/a.yaml", "d/e", "d/e/c.yaml", ".h", ".h/x.yaml", "l.yaml", "m"];

fn apply(
    root: &FilePath,
    trees: &FilePath,
    step: &Step,
    disk: &mut Disk,
    walked: &mut Option<Tree>,
    follower: &mut Follower,
) {
    let at = |place: usize| root.join(PLACES[place]);
    // Much of what may be tried is impossible, and then nothing happens.
    match step {
        Step::Write(place, value) => {
            let draft = root.join(".draft");
            let parent = at(*place).parent().map(FilePath::to_owned).unwrap_or_default();
            drop(fs::create_dir_all(parent));
            drop(fs::write(&draft, value.to_string()).and_then(|()| fs::rename(&draft, at(*place))));
        }
        Step::Rewrite(place, value) => drop(fs::write(at(*place), value.to_string())),
        Step::Remove(place) => drop(fs::remove_file(at(*place)).or_else(|_| fs::remove_dir_all(at(*place)))),
        Step::Rename(from, to) => drop(fs::rename(at(*from), at(*to))),
        Step::Link(target, place) => drop(symlink(at(*target), at(*place))),
        Step::Swap(tree) => {
            let (next, tree) = (trees.join("next"), trees.join(tree.to_string()));
            drop(fs::create_dir(&tree));
            drop(symlink(&tree, &next).and_then(|()| fs::rename(&next, root)));
        }
        Step::Walk => *walked = Some(disk.begin_poll()().unwrap()),
        Step::Compare => {
            if let Some(tree) = walked.take() {
                follower.hear(disk.end_poll(tree).unwrap());
            }
        }
        Step::Tell(places) => {
            let touched = places.iter().map(|place| (at(*place), Touched::Content)).collect();
            follower.hear(disk.look(&touched).unwrap());
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || 0..PLACES.len();
    let step = prop_oneof![
        4 => (place(), 0..4_u8).prop_map(|(place, value)| Step::Write(place, value)),
        2 => (place(), 0..4_u8).prop_map(|(place, value)| Step::Rewrite(place, value)),
        2 => place().prop_map(Step::Remove),
        4 => (place(), place()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (place(), place()).prop_map(|(from, to)| Step::Link(from, to)),
        1 => (0..2_u8).prop_map(Step::Swap),
        3 => Just(Step::Walk),
        3 => Just(Step::Compare),
        2 => prop::collection::vec(place(), 1..4).prop_map(Step::Tell),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    /// Whatever happened, and however little of it was notified: once nothing changes, what is known equals what a
    /// start reads.
    #[test]
    fn what_is_followed_is_what_a_fresh_start_reads(steps in steps()) {
        let trees = tempfile::tempdir().unwrap();
        let root = trees.path().join("root");
        fs::create_dir(trees.path().join("0")).unwrap();
        symlink(trees.path().join("0"), &root).unwrap();
        let mut disk = Disk::new(root.clone(), Watches::none());
        let mut follower = Follower::default();
        follower.hear(disk.scan().unwrap());
        let mut walked = None;
        for step in &steps {
            apply(&root, trees.path(), step, &mut disk, &mut walked, &mut follower);
        }
        follower.poll(&mut disk);
        prop_assert_eq!(follower.0, afresh(&root));
    }
}

/// There is one for each file, in a table of which up to half is unused.
#[test]
fn what_is_known_of_a_file_takes_little() {
    assert!(size_of::<Known>() <= 80, "{}", size_of::<Known>());
    assert_eq!(size_of::<Option<Box<Known>>>(), size_of::<usize>());
}
