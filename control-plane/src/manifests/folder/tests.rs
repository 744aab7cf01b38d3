use proptest::prelude::*;

use super::super::document::parse;
use super::*;

fn text(text: &str) -> Content {
    Content::Text(parse(text))
}

fn map(name: &str, value: &str) -> String {
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\"}},\"data\":{{\"k\":\"{value}\"}}}}\n"
    )
}

/// `+a=1` applied, `!a` broken, `-a` deleted.
fn say(events: &[Event]) -> Vec<String> {
    let name = |object: &ObjectRef| object.name.name.to_string();
    events
        .iter()
        .map(|event| match event {
            Event::Applied { object: Object::ConfigMap(it), .. } => {
                format!("+{}={}", it.metadata.name, it.data["k"])
            }
            Event::Broken { object, .. } => format!("!{}", name(object)),
            Event::Deleted(object) => format!("-{}", name(object)),
            Event::Noted { file, problems } => format!("?{file}*{}", problems.len()),
            Event::Moved { object, location } => format!(">{}@{location}", name(object)),
            other => format!("{other:?}"),
        })
        .collect()
}

fn update<const N: usize>(folder: &mut Folder, found: [(&str, Content); N]) -> Vec<String> {
    say(&folder.update(found.map(|(path, content)| (path.into(), content))).events)
}

#[test]
fn only_what_differs_is_told() {
    let mut folder = Folder::default();
    assert_eq!(update(&mut folder, [("f", text(&(map("a", "1") + &map("b", "1"))))]), ["+a=1", "+b=1"]);
    assert_eq!(
        update(&mut folder, [("f", text(&(map("b", "1") + &map("a", "2"))))]),
        ["+a=2", ">b@f:1"],
        "order is a place, and nothing else"
    );
    assert_eq!(update(&mut folder, [("f", text(&map("b", "1")))]), ["-a"]);
    assert_eq!(update(&mut folder, [("f", text(""))]), ["-b"], "an empty file has none");
}

#[test]
fn a_renamed_file_is_no_change() {
    let mut folder = Folder::default();
    update(&mut folder, [("f", text(&map("a", "1")))]);
    assert_eq!(
        update(&mut folder, [("f", Content::Gone), ("g", text(&map("a", "1")))]),
        [">a@g:1"],
        "but for where it stands"
    );
    assert_eq!(
        folder.file_of(&parse(&map("a", "1")).objects[0].0.reference()).map(|path| &**path),
        Some("g")
    );
    assert_eq!(update(&mut folder, [("g", Content::Gone)]), ["-a"]);
}

#[test]
fn of_two_files_the_first_path_wins_aloud() {
    let mut folder = Folder::default();
    update(&mut folder, [("m", text(&map("a", "m")))]);
    let outcome = folder.update([("z".into(), text(&map("a", "z")))]);
    let [Event::Noted { file, problems }] = &outcome.events[..] else { panic!("{outcome:?}") };
    assert_eq!(&**file, "z");
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "ConfigMap default/a: it is also defined in m, which comes first by name and is used (overridden) [z:1]"
        ]
    );
    assert_eq!(update(&mut folder, [("b", text(&map("a", "b")))]), ["+a=b", "?m*1", "?z*1"]);
    assert_eq!(update(&mut folder, [("b", Content::Gone)]), ["+a=m", "?m*0", "?z*1"], "the next takes over");
    assert_eq!(update(&mut folder, [("m", Content::Gone)]), ["+a=z", "?z*0"]);
    assert_eq!(update(&mut folder, [("z", Content::Gone)]), ["-a"]);
}

#[test]
fn twice_in_a_file_is_said_and_so_is_its_end() {
    let mut folder = Folder::default();
    assert_eq!(update(&mut folder, [("f", text(&(map("a", "1") + &map("a", "2"))))]), ["+a=1", "?f*1"]);
    let Some(noted) = folder.noted.get("f") else { panic!("{folder:?}") };
    assert_eq!((noted[0].location.as_str(), noted[0].severity), ("f:2", Severity::Overridden));
    assert_eq!(update(&mut folder, [("f", text(&map("a", "2")))]), ["+a=2", "?f*0"]);
}

#[test]
fn a_file_that_never_had_an_object_is_said() {
    let mut folder = Folder::default();
    assert_eq!(update(&mut folder, [("f", text("a: [\n"))]), ["?f*1"]);
    let Some(noted) = folder.noted.get("f") else { panic!("{folder:?}") };
    assert!(noted[0].to_string().starts_with("file f: expected YAML"), "{noted:?}");
    assert_eq!(folder.absent(&BTreeSet::new()).len(), 1);
    assert_eq!(update(&mut folder, [("f", Content::Gone)]), ["?f*0"]);
    let many = "---\nkind: 7\n".repeat(3 * MAX_NOTES);
    folder.update([("f".into(), text(&many))]);
    assert_eq!(folder.noted["f"].len(), MAX_NOTES + 1, "they are counted past a point");
}

#[test]
fn lines_that_move_are_told() {
    let mut folder = Folder::default();
    let (a, b) = (map("a", "1"), map("b", "1"));
    update(&mut folder, [("f", text(&format!("{a}{b}")))]);
    assert_eq!(update(&mut folder, [("f", text(&format!("{a}\n\n{b}")))]), [">b@f:4"]);
    let bad = b.replace("\"1\"", "[2]");
    assert_eq!(update(&mut folder, [("f", text(&format!("{a}{bad}")))]), ["!b"]);
    assert_eq!(update(&mut folder, [("f", text(&format!("\n{a}{bad}")))]), [">a@f:2", "!b"]);
}

#[test]
fn what_is_skipped_is_said() {
    let mut folder = Folder::default();
    let skipped = BTreeMap::from([("l.yaml".into(), "it is a link to nothing".to_owned())]);
    assert_eq!(say(&folder.skip(skipped.clone())), ["?l.yaml*1"]);
    assert_eq!(say(&folder.skip(skipped)), [""; 0]);
    assert_eq!(update(&mut folder, [("l.yaml", text("a: [\n"))]), ["?l.yaml*2"]);
    assert_eq!(say(&folder.skip(BTreeMap::new())), ["?l.yaml*1"]);
}

#[test]
fn what_a_bad_file_had_is_held() {
    let mut folder = Folder::default();
    let good = map("a", "1") + &map("b", "1");
    update(&mut folder, [("f", text(&good))]);
    assert_eq!(update(&mut folder, [("f", text(&good[..good.len() - 9]))]), ["!b"], "what can be read stays");
    assert_eq!(update(&mut folder, [("f", text("{"))]), ["!a", "!b"]);
    assert_eq!(
        update(&mut folder, [("f", Content::Unreadable("no".into()))]),
        ["!a", "!b"],
        "another reason"
    );
    assert_eq!(update(&mut folder, [("f", text(&good))]), ["+a=1", "+b=1"], "good again is told");
    update(&mut folder, [("f", text("{"))]);
    assert_eq!(
        update(&mut folder, [("f", Content::Gone)]),
        ["-a", "-b"],
        "a deleted file has nothing to hold"
    );
}

#[test]
fn a_named_bad_document_is_that_object_alone() {
    let mut folder = Folder::default();
    update(&mut folder, [("f", text(&(map("a", "1") + &map("b", "1"))))]);
    let bad = map("b", "2").replace("\"2\"", "[2]");
    let outcome = folder.update([("f".into(), text(&(map("c", "1") + &bad)))]);
    assert_eq!(say(&outcome.events), ["-a", "!b", "+c=1"], "the file is whole, so what it lacks is gone");
    let Event::Broken { problem, .. } = &outcome.events[1] else { panic!("{outcome:?}") };
    assert_eq!((problem.location.as_str(), problem.field.as_str()), ("f:2", "data.k"));
}

#[test]
fn a_file_that_is_bad_from_the_start_shows_what_is_on_hold() {
    let held = parse(&map("a", "1")).objects[0].0.reference();
    let mut folder = Folder::new(BTreeMap::from([("f".into(), vec![held])]));
    assert_eq!(update(&mut folder, [("f", text("{")), ("g", text("{"))]), ["!a", "?g*1"]);
    assert_eq!(update(&mut folder, [("f", text(""))]), ["-a"]);
    assert_eq!(update(&mut folder, [("f", text("{"))]), ["?f*1"], "it is remembered no longer");
}

/// As after a restart, whenever the record of the hold appears.
#[test]
fn a_hold_that_appears_later_is_of_the_file_that_was_bad_from_the_start() {
    let held = |name: &str| parse(&map(name, "1")).objects[0].0.reference();
    let of = |file: &str, names: &[&str]| {
        BTreeMap::from([(file.into(), names.iter().map(|it| held(it)).collect())])
    };
    let mut folder = Folder::default();
    assert_eq!(update(&mut folder, [("f", text("{")), ("g", text(&map("b", "1")))]), ["+b=1", "?f*1"]);
    assert_eq!(say(&folder.remember(of("f", &["a"]))), ["!a", "?f*0"]);
    assert_eq!(say(&folder.remember(of("f", &["a"]))), [""; 0], "once");
    assert_eq!(say(&folder.remember(of("f", &["c"]))), ["!c"]);
    assert_eq!(say(&folder.remember(of("g", &["d"]))), [""; 0], "what can be read is known");
    assert_eq!(update(&mut folder, [("f", text("}"))]), ["!a", "!c"], "broken otherwise");
    assert_eq!(update(&mut folder, [("f", text(&map("a", "2")))]), ["+a=2", "-c"]);

    // A file of which another document can be read, and that shows what is on hold.
    let mut folder = Folder::default();
    let half = format!("---\n{}---\nkind: 7\n", map("a", "1"));
    assert_eq!(update(&mut folder, [("f", text(&half))]), ["+a=1", "?f*1"]);
    assert_eq!(say(&folder.remember(of("f", &["a"]))), [""; 0]);
    assert_eq!(say(&folder.remember(of("f", &["a", "b"]))), ["!b", "?f*0"]);
}

#[test]
fn a_folder_goes_with_its_files() {
    let mut folder = Folder::default();
    update(
        &mut folder,
        [("web/a", text(&map("a", "1"))), ("web-2", text(&map("b", "1"))), ("web/c/d", text(&map("d", "1")))],
    );
    let gone = [("web/a", Content::Gone), ("web/c/d", Content::Gone)];
    assert_eq!(update(&mut folder, gone), ["-a", "-d"]);
}

#[test]
fn many_absent_files_are_doubtful() {
    let mut folder = Folder::default();
    for file in 0..40 {
        update(&mut folder, [(format!("{file:02}").as_str(), text(&map(&format!("m{file}"), "1")))]);
    }
    let present = |from: usize| (from..40).map(|file| Path::from(format!("{file:02}"))).collect();
    assert_eq!(folder.absent(&present(2)).len(), 2);
    assert!(!folder.is_doubtful(&folder.absent(&present(2))));
    assert!(folder.is_doubtful(&folder.absent(&present(11))));
    assert!(folder.is_doubtful(&folder.absent(&BTreeSet::new())));
    assert!(!folder.is_doubtful(&[]));
}

proptest! {
    /// Events, replayed, give what reading the final files at once gives.
    #[test]
    fn any_history_leads_to_the_final_files(
        steps in prop::collection::vec((0..4_usize, prop::collection::vec((0..5_usize, 0..3_usize), 0..4), any::<bool>()), 1..30)
    ) {
        let mut folder = Folder::default();
        let mut files: BTreeMap<Path, String> = BTreeMap::new();
        let mut seen: BTreeMap<ObjectRef, Object> = BTreeMap::new();
        for (file, objects, gone) in steps {
            let path: Path = format!("f{file}").into();
            let body: String = objects.iter().map(|(name, value)| map(&format!("o{name}"), &value.to_string())).collect();
            let content = if gone { files.remove(&path); Content::Gone } else {
                files.insert(Arc::clone(&path), body.clone());
                text(&body)
            };
            for event in folder.update([(path, content)]).events {
                match event {
                    Event::Applied { object, .. } => prop_assert_ne!(seen.insert(object.reference(), object.clone()), Some(object)),
                    Event::Deleted(object) => prop_assert!(seen.remove(&object).is_some()),
                    Event::Noted { .. } | Event::Moved { .. } => {}
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
        let mut want = BTreeMap::new();
        for (object, _) in files.values().flat_map(|body| parse(body).objects) {
            want.entry(object.reference()).or_insert(object);
        }
        prop_assert_eq!(seen, want);
    }
}

/// There is one for each file, and a folder may have tens of thousands.
#[test]
fn a_file_without_faults_takes_little() {
    assert!(size_of::<File>() <= 32, "{}", size_of::<File>());
}
