use std::fs;
use std::path::Path;

use super::look::REPLACED;
use super::*;
use crate::event::{Arrivals, Hold, Receivers};
use crate::manifests::notice::{Pending, Touched};
use crate::manifests::watches::Watches;

fn ingress(name: &str) -> String {
    format!(
        "{{\"apiVersion\":\"networking.k8s.io/v1\",\"kind\":\"Ingress\",\"metadata\":{{\"name\":\"{name}\"}}}}"
    )
}

/// The source without its loop, and what it sends except for endpoints.
fn reader(dir: &Path) -> (Reader, Arrivals, Arrivals) {
    reader_with(dir, Records::new(dir, None))
}

/// One with decisions on disk, which has told what is in its folder; and a hold of the Ingress `web`.
async fn with_decisions(dir: &Path, state: &Path) -> (Reader, Arrivals, Arrivals, Hold) {
    let (mut reader, mut heard, slices) = reader_with(dir, Records::new(dir, Some(state)));
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    let object = crate::objects::json::decode(ObjectKind::Ingress, &ingress("web")).unwrap();
    (reader, heard, slices, Hold { object })
}

fn reader_with(dir: &Path, records: Records) -> (Reader, Arrivals, Arrivals) {
    let notice = Notice::new(dir.into());
    let (inputs, Receivers { endpoints: slices, objects: heard }) = Inputs::channel(64);
    let disk = Disk::new(dir.into(), Watches::telling(&notice).unwrap());
    let folder = Folder::default();
    let mut reader = Reader::new(dir.into(), disk, notice, records, folder, Freshness::default(), inputs);
    reader.set_pin(PinFile::new(dir, None));
    (reader, heard, slices)
}

async fn compare_stamps(reader: &mut Reader) {
    reader.poll = Some(Instant::now());
    reader.due(Instant::now()).await.unwrap();
    let walked = walked(&mut reader.walking).await.unwrap();
    reader.compare_stamps(walked, None).await.unwrap();
}

#[tokio::test]
async fn an_empty_folder_is_believed_after_a_second_look() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    assert!(heard.try_recv().is_err());
    reader.due(Instant::now()).await.unwrap();
    assert!(heard.try_recv().is_err(), "not yet");
    reader.due(Instant::now() + SECOND_LOOK).await.unwrap();
    assert_eq!(heard.try_recv(), Ok(Input::Synced(ObjectKind::Ingress)));
    assert!(reader.freshness.synced() && reader.empty_until.is_none());
}

#[tokio::test]
async fn many_files_that_vanish_unseen_need_a_second_look() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("still.yaml"), ingress("still")).unwrap();
    fs::write(dir.path().join("more.yaml"), ingress("more")).unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    for at in 0..20 {
        let file = dir.path().join(format!("a/{at}.yaml"));
        fs::write(file, ingress(&format!("web{at}"))).unwrap();
    }
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    let now = Instant::now();
    while heard.try_recv().is_ok() {}
    fs::remove_file(dir.path().join("still.yaml")).unwrap();
    reader.rescan(now).await.unwrap();
    assert_eq!(deleted(&mut heard), 1, "few go at once");
    fs::rename(dir.path().join("a"), dir.path().join(".a")).unwrap();
    reader.rescan(now).await.unwrap();
    assert_eq!(deleted(&mut heard), 0);
    assert!(!reader.absent.is_empty());
    fs::rename(dir.path().join(".a"), dir.path().join("a")).unwrap();
    reader.rescan(now).await.unwrap();
    assert_eq!((deleted(&mut heard), !reader.absent.is_empty()), (0, false), "they came back");
    fs::rename(dir.path().join("a"), dir.path().join(".a")).unwrap();
    reader.rescan(now).await.unwrap();
    reader.rescan(now + SECOND_LOOK / 2).await.unwrap();
    assert_eq!(deleted(&mut heard), 0, "too soon");
    reader.rescan(now + 2 * SECOND_LOOK).await.unwrap();
    assert_eq!((deleted(&mut heard), !reader.absent.is_empty()), (20, false), "two looks agree");
}

fn deleted(heard: &mut Arrivals) -> usize {
    let mut count = 0;
    while let Ok(input) = heard.try_recv() {
        if let Input::Events(events) = input {
            count += events.iter().filter(|event| matches!(event, Event::Deleted(_))).count();
        }
    }
    count
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_at_last_is_not_taken_for_empty() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let (mut reader, mut heard, _slices) = reader(&folder);
    reader.start(Vec::new()).await.unwrap();
    fs::remove_dir(&folder).unwrap();
    let later = Instant::now() + SECOND_LOOK;
    reader.due(later).await.unwrap();
    let said = |heard: &mut Arrivals| match heard.try_recv() {
        Ok(Input::Events(events)) => events,
        other => panic!("{other:?}"),
    };
    let [Event::Noted { file, problems }] = &said(&mut heard)[..] else { panic!() };
    assert_eq!((&**file, problems.len()), (folder.to_str().unwrap(), 1), "{problems:?}");
    assert!(heard.try_recv().is_err() && reader.empty_until == Some(later + SECOND_LOOK));
    fs::create_dir(&folder).unwrap();
    reader.due(later + SECOND_LOOK).await.unwrap();
    let events = said(&mut heard);
    assert!(matches!(&events[..], [Event::Noted { problems, .. }] if problems.is_empty()), "{events:?}");
    assert_eq!(heard.try_recv(), Ok(Input::Synced(ObjectKind::Ingress)));
}

#[tokio::test]
async fn a_replaced_file_does_not_go_in_between() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.yaml");
    fs::write(&file, ingress("web")).unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    fs::remove_file(&file).unwrap();
    let touched = |paths: &[&PathBuf]| Pending {
        paths: paths.iter().map(|path| ((*path).clone(), Touched::Content)).collect(),
        lost: None,
    };
    // The file exists again when the second scan is due.
    let (looked, ()) = tokio::join!(biased; reader.look(touched(&[&file])), async {
        tokio::time::sleep(REPLACED / 2).await;
        fs::write(&file, ingress("web")).unwrap();
    });
    looked.unwrap();
    assert_eq!(deleted(&mut heard), 0);
    fs::remove_file(&file).unwrap();
    reader.look(touched(&[&file])).await.unwrap();
    assert_eq!(deleted(&mut heard), 1);
}

/// The clock moves only where the reader waits for files that may be about to be replaced.
#[tokio::test(start_paused = true)]
async fn a_folder_that_is_written_without_end_holds_up_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("quiet.yaml"), ingress("before")).unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    // Each is new and empty: its content may come in a moment.
    let write = |round: u32| fs::write(at(&format!("{round}.yaml")), "").unwrap();
    write(0);
    fs::write(at("quiet.yaml"), ingress("after")).unwrap();
    let paths = ["0.yaml", "quiet.yaml"].map(|name| (at(name), Touched::Content));
    let begun = Instant::now();
    tokio::select! { biased;
        looked = reader.look(Pending { paths: paths.into(), lost: None }) => looked.unwrap(),
        () = async {
            for round in 1..1_000 {
                tokio::time::sleep(REPLACED / 4).await;
                write(round);
            }
        } => panic!("it never ends"),
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(200) && took <= Duration::from_millis(250), "{took:?}");
    let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
    let is_there = |event: &Event| matches!(event, Event::Applied { object, .. } if &*object.reference().name.name == "after");
    assert!(events.iter().any(is_there), "{events:?}");
    // What came too late is read the next time.
    let late = reader.notice.take().paths;
    assert!(!late.is_empty());
    reader.look(Pending { paths: late, lost: None }).await.unwrap();
}

/// Of two slices that take turns one has an endpoint at any time. The second is read, the first changed before it.
#[tokio::test]
async fn what_changed_before_what_was_read_is_told_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        fs::write(dir.path().join(".draft"), text).unwrap();
        fs::rename(dir.path().join(".draft"), dir.path().join(name)).unwrap();
    };
    write("one.yaml", ingress("off-one"));
    write("two.yaml", ingress("on-two"));
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    for at in 0..200 {
        let (first, second) = if at % 2 == 0 { ("one", "two") } else { ("two", "one") };
        while heard.try_recv().is_ok() {}
        // Nothing of what happened until here is new.
        reader.look(Pending::default()).await.unwrap();
        while heard.try_recv().is_ok() {}
        write(&format!("{first}.yaml"), ingress(&format!("on-{first}")));
        write(&format!("{second}.yaml"), ingress(&format!("off-{second}")));
        let paths = BTreeMap::from([(dir.path().join(format!("{second}.yaml")), Touched::Content)]);
        reader.look(Pending { paths, lost: None }).await.unwrap();
        let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
        assert_eq!(events.len(), 4, "{at}: {events:?}");
    }
}

/// How files are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Those that the kernel tells of.
    Told,
    /// All of them by their stamps.
    Stamps,
    /// All of them are read again.
    Anew,
}

#[tokio::test]
async fn what_is_written_without_end_is_told_as_it_was_at_one_time() {
    is_told_as_it_was_at_one_time(Way::Told).await;
}

#[tokio::test]
async fn a_comparison_of_stamps_tells_what_was_at_one_time() {
    is_told_as_it_was_at_one_time(Way::Stamps).await;
}

#[tokio::test]
async fn a_folder_that_is_read_anew_is_told_as_it_was_at_one_time() {
    is_told_as_it_was_at_one_time(Way::Anew).await;
}

/// Of each pair of files one says `on` at any time, however fast they are written.
async fn is_told_as_it_was_at_one_time(way: Way) {
    const PAIRS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let write = {
        let dir = dir.path().to_owned();
        move |file: String, says: &str| {
            fs::write(dir.join(".draft"), ingress(&format!("{says}-{file}"))).unwrap();
            fs::rename(dir.join(".draft"), dir.join(format!("{file}.yaml"))).unwrap();
        }
    };
    for pair in 0..PAIRS {
        write(format!("{pair}a"), "on");
        write(format!("{pair}b"), "off");
    }
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    let writing = std::thread::spawn(move || {
        for round in 0..800 {
            // Sooner than anybody looks twice, for longer than anybody waits.
            std::thread::sleep(Duration::from_millis(1));
            let (pair, turn) = (round % PAIRS, round / PAIRS % 2);
            let [first, second] = if turn == 0 { ["b", "a"] } else { ["a", "b"] };
            write(format!("{pair}{first}"), "on");
            write(format!("{pair}{second}"), "off");
        }
    });
    let (mut present, mut looks) = (BTreeSet::new(), 0);
    loop {
        let is_over = writing.is_finished();
        while let Ok(input) = heard.try_recv() {
            let Input::Events(events) = input else { continue };
            for event in events {
                match event {
                    Event::Applied { object, .. } => present.insert(object.reference().name.name.to_string()),
                    Event::Deleted(object) => present.remove(&object.name.name.to_string()),
                    _ => false,
                };
            }
            for pair in 0..PAIRS {
                let is_on = ["a", "b"].iter().any(|file| present.contains(&format!("on-{pair}{file}")));
                assert!(is_on, "look {looks}, pair {pair}: {present:?}");
            }
        }
        if is_over && looks > 0 {
            break;
        }
        match way {
            Way::Told => {}
            Way::Stamps => compare_stamps(&mut reader).await,
            Way::Anew => reader.rescan(Instant::now()).await.unwrap(),
        }
        let pending = reader.notice.take();
        reader.look(pending).await.unwrap();
        looks += 1;
    }
    writing.join().unwrap();
}

#[tokio::test]
async fn what_is_in_a_folder_that_cannot_be_read_stays() {
    let dir = tempfile::tempdir().unwrap();
    for (folder, files) in [("a/b", 3), ("ab", 2)] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        for at in 0..files {
            let file = dir.path().join(format!("{folder}/{at}.yaml"));
            fs::write(file, ingress(&format!("web{at}-{files}"))).unwrap();
        }
    }
    fs::write(dir.path().join("still.yaml"), ingress("still")).unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    fs::remove_dir_all(dir.path().join("ab")).unwrap();
    let mut scan = reader.scan().await.unwrap().unwrap();
    let whole = scan.whole.as_mut().unwrap();
    whole.present.retain(|path| !path.starts_with("a/"));
    whole.unread.insert("a".into(), "no".into());
    reader.compare(scan, Instant::now()).await.unwrap();
    assert!(!reader.is_whole);
    assert_eq!(deleted(&mut heard), 2, "those below are held, a folder of a similar name is not");
}

#[tokio::test]
async fn nothing_is_complete_before_all_of_the_folder_was_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("still.yaml"), ingress("still")).unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    let mut scan = reader.scan().await.unwrap().unwrap();
    scan.whole.as_mut().unwrap().unread.insert("a".into(), "no".into());
    // As at a start that met an error of the disk in a sub-folder.
    reader.empty_until = Some(Instant::now() + SECOND_LOOK);
    reader.compare(scan, Instant::now()).await.unwrap();
    let mut inputs = Vec::new();
    while let Ok(input) = heard.try_recv() {
        inputs.push(input);
    }
    assert!(inputs.iter().all(|input| matches!(input, Input::Events(_))), "{inputs:?}");
    let said = format!("{inputs:?}");
    assert!(said.contains("the folder cannot be read, what it had stays: no"), "{said}");
    reader.due(Instant::now() + SECOND_LOOK).await.unwrap();
    let synced = |input: &Input| matches!(input, Input::Synced(_));
    let mut is_synced = false;
    while let Ok(input) = heard.try_recv() {
        is_synced |= synced(&input);
    }
    assert!(is_synced, "it can be read now");
}

#[tokio::test]
async fn a_large_file_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("still.yaml"), ingress("still")).unwrap();
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    // Flow mappings of YAML, which take the reader long.
    let item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: large}, data: {a: b}}\n---\n";
    let (large, small) = (dir.path().join("large.yaml"), dir.path().join("small.yaml"));
    fs::write(&large, item.repeat(20_000)).unwrap();
    let touched =
        |path: &PathBuf| Pending { paths: BTreeMap::from([(path.clone(), Touched::Content)]), lost: None };
    reader.look(touched(&large)).await.unwrap();
    fs::write(&small, ingress("small")).unwrap();
    reader.look(touched(&small)).await.unwrap();
    let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
    let [Event::Applied { object, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(&*object.metadata().name, "small", "it did not wait");
    let parsed = reader.backlog.next().await;
    reader.tell(parsed).await.unwrap();
    let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
    assert!(matches!(&events[..], [Event::Applied { .. }, Event::Noted { .. }]), "{}", events.len());
}

/// A large one, or one on a slow disk.
#[tokio::test]
async fn a_folder_that_takes_long_to_walk_holds_up_no_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["still", "changed"] {
        fs::write(dir.path().join(format!("{name}.yaml")), ingress(name)).unwrap();
    }
    let (mut reader, mut heard, _slices) = reader(dir.path());
    reader.start(Vec::new()).await.unwrap();
    while heard.try_recv().is_ok() {}
    let (end, ended) = std::sync::mpsc::channel::<()>();
    // What it finds is old when it ends.
    let walked = Walked { began: clock::now(), tree: reader.disk.as_mut().unwrap().begin_poll()() };
    reader.walking = Some(tokio::task::spawn_blocking(move || {
        ended.recv().unwrap();
        walked
    }));
    let (_holds, holds) = mpsc::channel(1);
    let (_pins, pins) = mpsc::channel(1);
    let mut following = tokio::task::JoinSet::new();
    following.spawn(async move { reader.follow(holds, pins, Some(PACE)).await });

    let draft = dir.path().join(".draft");
    fs::write(&draft, ingress("new")).unwrap();
    fs::rename(&draft, dir.path().join("changed.yaml")).unwrap();
    let mut told = BTreeSet::new();
    while told.len() < 2 {
        let Some(Input::Events(events)) = heard.recv().await else { panic!("nothing was told") };
        for event in events {
            match event {
                Event::Applied { object, .. } => told.insert(format!("+{}", object.metadata().name)),
                Event::Deleted(object) => told.insert(format!("-{}", object.name.name)),
                event => panic!("{event:?}"),
            };
        }
    }
    assert_eq!(told, BTreeSet::from(["+new".to_owned(), "-changed".to_owned()]), "while it walks");
    end.send(()).unwrap();
    fs::remove_file(dir.path().join("still.yaml")).unwrap();
    loop {
        let Some(Input::Events(events)) = heard.recv().await else { panic!("nothing was told") };
        match &events[..] {
            [Event::Deleted(object)] if &*object.name.name == "still" => break,
            [Event::Noted { .. }] => {}
            events => panic!("what the walk saw is old: {events:?}"),
        }
    }
}

/// Without notifications, and without any change in the folder.
#[tokio::test]
async fn decisions_of_somebody_else_are_acted_on() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("web.yaml"), ingress("web")).unwrap();
    let other = Records::new(dir.path(), Some(state.path()));
    let (mut reader, mut heard, _slices, hold) = with_decisions(dir.path(), state.path()).await;
    let name = hold.object.reference();
    let write = HoldRequest::Write(hold.clone());

    other.fulfil(write.clone(), Some(&"web.yaml".into())).unwrap();
    compare_stamps(&mut reader).await;
    assert_eq!(heard.try_recv(), Ok(Input::Events(vec![Event::Held(hold.clone())])));
    other.fulfil(HoldRequest::Erase(name.clone()), None).unwrap();
    compare_stamps(&mut reader).await;
    assert_eq!(heard.try_recv(), Ok(Input::Events(vec![Event::Released(name)])));

    reader.fulfil(write).await.unwrap();
    assert_eq!(heard.try_recv(), Ok(Input::Events(vec![Event::Held(hold)])));
    compare_stamps(&mut reader).await;
    assert!(heard.try_recv().is_err(), "its own it has read back already");
}

/// A document that could be any object, until a record says which it was.
#[tokio::test]
async fn a_hold_of_what_is_broken_from_the_start_acts_when_it_appears() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("still.yaml"), ingress("still")).unwrap();
    fs::write(dir.path().join("web.yaml"), "{").unwrap();
    let (mut reader, mut heard, _slices, hold) = with_decisions(dir.path(), state.path()).await;
    let other = Records::new(dir.path(), Some(state.path()));
    other.fulfil(HoldRequest::Write(hold.clone()), Some(&"web.yaml".into())).unwrap();
    compare_stamps(&mut reader).await;
    let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
    let [Event::Held(told), Event::Broken { object, problem, .. }, Event::Noted { problems, .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((told, object), (&hold, &hold.object.reference()));
    assert!(problem.location.starts_with("web.yaml:1"), "{problem:?}");
    assert!(problems.is_empty(), "it stands at its object now: {problems:?}");
}

/// As on a disk that is full.
#[tokio::test]
async fn a_hold_that_the_disk_does_not_take_is_told_until_it_does() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("web.yaml"), ingress("web")).unwrap();
    let (mut reader, mut heard, _slices, hold) = with_decisions(dir.path(), state.path()).await;
    let in_the_way = state.path().join("decisions");
    fs::write(&in_the_way, "").unwrap();
    reader.fulfil(HoldRequest::Write(hold.clone())).await.unwrap();
    for _ in 0..2 {
        let Ok(Input::Events(events)) = heard.try_recv() else { panic!("nothing was told") };
        let [Event::Unstored { object, reason }] = &events[..] else { panic!("{events:?}") };
        assert!(*object == hold.object.reference() && !reason.is_empty(), "{events:?}");
        reader.due(reader.retry.expect("it is tried again")).await.unwrap();
    }
    let before = reader.failures.failed(&hold.object.reference(), "another reason");
    assert_eq!(before, Some(4), "each try counts, whatever was logged of it");
    while heard.try_recv().is_ok() {}
    fs::remove_file(in_the_way).unwrap();
    reader.due(reader.retry.expect("it is tried again")).await.unwrap();
    assert_eq!(heard.try_recv(), Ok(Input::Events(vec![Event::Held(hold.clone())])));
    assert_eq!(reader.failures.done(&hold.object.reference()), None, "it was said that it is stored");
}
