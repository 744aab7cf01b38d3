//! The contents of the folder: which file has which object, and what a change of files means for objects. Pure.
//!
//! **Invariant:** the events of any sequence of changes lead to the same objects as reading the final files at once,
//! and a change costs only the objects of the files that it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::few::{Few, FewOf};

use super::document::{Fault, Parsed};
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity, Subject};
use crate::removal;

/// A file's path within the folder: `a/web.yaml`. Ordered by bytes.
pub(super) type Path = Arc<str>;

/// The content of a path.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Content {
    /// The file does not exist any more.
    Gone,
    /// A file that is text.
    Text(Parsed),
    /// A file that cannot be read, and why.
    Unreadable(String),
}

/// All files and their objects.
#[derive(Debug, Default)]
pub(super) struct Folder {
    files: BTreeMap<Path, File>,
    /// The files that have an object; the first wins.
    owners: HashMap<ObjectRef, FewOf<Path>>,
    /// Held objects, by their last file: candidates for the contents of a file that was never valid.
    remembered: BTreeMap<Path, Vec<ObjectRef>>,
    /// Files that look like manifests and are not read, and why.
    skipped: BTreeMap<Path, String>,
    /// The problems of files that were reported.
    noted: BTreeMap<Path, Vec<Problem>>,
}

/// Limit of the problems of one file that are listed; the others are counted.
const MAX_NOTES: usize = 100;

/// The contents of one file. There is one for each, so that what few have is boxed.
#[derive(Clone, Debug, Default)]
struct File {
    entries: Entries,
    faulty: Option<Box<Faulty>>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, Default)]
struct Faulty {
    /// Problems that belong to no entry.
    problems: Vec<Problem>,
    /// Faults of documents whose object is unknown.
    faults: Vec<Fault>,
    /// Whether the first of them is assigned to entries: objects that the file had, or that are held, and that it does
    /// not show.
    is_placed: bool,
}

impl File {
    /// Assumes that the invalid documents are these objects, as far as the file does not show them.
    fn suspect(&mut self, path: &Path, objects: Vec<ObjectRef>) {
        let Some(Faulty { faults, is_placed, .. }) = self.faulty.as_deref_mut() else {
            return;
        };
        let Some(fault) = faults.first() else {
            return;
        };
        for name in objects {
            if !self.entries.contains_key(&name) {
                let bad = problem(name.clone().into(), Severity::Rejected, path, fault);
                self.entries.insert(name, Entry::Bad(Box::new(bad)));
                *is_placed = true;
            }
        }
    }

    /// The problems of the file itself, and those that belong to no entry.
    fn problems(&self, path: &Path) -> impl Iterator<Item = Problem> {
        self.faulty.iter().flat_map(move |faulty| {
            let faults = faulty.faults.iter().skip(usize::from(faulty.is_placed));
            let of_file =
                faults.map(|fault| problem(Subject::File(Arc::clone(path)), Severity::Rejected, path, fault));
            faulty.problems.iter().cloned().chain(of_file)
        })
    }
}

type Entries = Few<ObjectRef, Entry>;

/// One object in one file.
#[derive(Clone, Debug)]
enum Entry {
    Good { object: Object, location: Arc<str> },
    Bad(Box<Problem>),
}

impl Entry {
    /// Whether nothing changed, except perhaps the line of a valid one.
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Good { object: a, .. }, Self::Good { object: b, .. }) => a == b,
            (Self::Bad(a), Self::Bad(b)) => a == b,
            _ => false,
        }
    }

    fn location(&self) -> &str {
        match self {
            Self::Good { location, .. } => location,
            Self::Bad(problem) => &problem.location,
        }
    }
}

/// The effects of a change.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// For the index: events of objects in order, then of files.
    pub(super) events: Vec<Event>,
    /// API version and kind of ignored objects.
    pub(super) ignored: BTreeSet<String>,
}

impl Folder {
    /// An empty folder, with the files that held objects came from.
    pub(super) fn new(remembered: BTreeMap<Path, Vec<ObjectRef>>) -> Self {
        Self { remembered, ..Self::default() }
    }

    /// Takes in the files that held objects came from. For a file that was read this is known better, unless it has a
    /// document whose object is unknown: then that is taken for one of these, as if they had been known from the start.
    pub(super) fn remember(&mut self, by_file: BTreeMap<Path, Vec<ObjectRef>>) -> Vec<Event> {
        let (mut before, mut touched) = (BTreeMap::new(), BTreeSet::new());
        for (path, objects) in by_file {
            let Some(mut file) = self.files.get(&path).cloned() else {
                self.remembered.insert(path, objects);
                continue;
            };
            file.suspect(&path, objects);
            self.replace(&path, Some(file), &mut before, &mut touched);
        }
        self.events(before, touched)
    }

    /// Applies the new contents of some paths.
    pub(super) fn update(&mut self, found: impl IntoIterator<Item = (Path, Content)>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut before = BTreeMap::new();
        let mut touched = BTreeSet::new();
        for (path, content) in found {
            let parsed = match content {
                Content::Gone => {
                    self.replace(&path, None, &mut before, &mut touched);
                    continue;
                }
                Content::Text(parsed) => parsed,
                Content::Unreadable(reason) => {
                    let fault = Fault { line: 1, field: String::new(), reason };
                    Parsed { faults: vec![fault], ..Parsed::default() }
                }
            };
            outcome.ignored.extend(parsed.ignored.iter().cloned());
            let file = self.file(&path, parsed);
            self.replace(&path, Some(file), &mut before, &mut touched);
        }
        outcome.events = self.events(before, touched);
        outcome
    }

    /// The events of objects that were `before`, and of files whose problems changed.
    fn events(&mut self, before: BTreeMap<ObjectRef, Option<Entry>>, touched: BTreeSet<Path>) -> Vec<Event> {
        let objects = before.into_iter().filter_map(|(object, before)| self.event(object, before.as_ref()));
        let mut events: Vec<_> = objects.collect();
        events.extend(touched.into_iter().filter_map(|file| self.note(file)));
        events
    }

    /// Takes in the files that look like manifests and are not read.
    pub(super) fn skip(&mut self, skipped: BTreeMap<Path, String>) -> Vec<Event> {
        let before = std::mem::replace(&mut self.skipped, skipped);
        let files: BTreeSet<_> = before.into_keys().chain(self.skipped.keys().cloned()).collect();
        files.into_iter().filter_map(|file| self.note(file)).collect()
    }

    /// The problems of a file, if they changed.
    fn note(&mut self, path: Path) -> Option<Event> {
        let mut problems = Vec::new();
        if let Some(reason) = self.skipped.get(&path) {
            let reason = format!("is not read: {reason}");
            problems.push(Problem {
                object: Subject::File(Arc::clone(&path)),
                field: String::new(),
                severity: Severity::Warning,
                reason,
                location: path.to_string(),
            });
        }
        if let Some(file) = self.files.get(&path) {
            problems.extend(file.problems(&path));
            problems
                .extend(file.entries.iter().filter_map(|(name, entry)| self.overridden(&path, name, entry)));
        }
        if problems.len() > MAX_NOTES {
            let more = problems.len() - MAX_NOTES;
            problems.truncate(MAX_NOTES);
            problems.push(Problem {
                object: Subject::File(Arc::clone(&path)),
                field: String::new(),
                severity: Severity::Warning,
                reason: format!("the file has {more} more problems"),
                location: path.to_string(),
            });
        }
        if self.noted.get(&path).map_or(problems.is_empty(), |noted| *noted == problems) {
            return None;
        }
        match problems.is_empty() {
            true => self.noted.remove(&path),
            false => self.noted.insert(Arc::clone(&path), problems.clone()),
        };
        Some(Event::Noted { file: path, problems })
    }

    /// The problem that an earlier file has the same object.
    fn overridden(&self, path: &Path, name: &ObjectRef, entry: &Entry) -> Option<Problem> {
        let first = self.file_of(name).filter(|first| *first != path)?;
        let location = match entry {
            Entry::Good { location, .. } => location.to_string(),
            Entry::Bad(problem) => problem.location.clone(),
        };
        Some(Problem {
            object: name.clone().into(),
            field: String::new(),
            severity: Severity::Overridden,
            reason: format!("it is also defined in {first}, which comes first by name and is used"),
            location,
        })
    }

    /// The known files that a complete scan did not find.
    pub(super) fn absent(&self, present: &BTreeSet<Path>) -> Vec<Path> {
        self.files.keys().filter(|path| !present.contains(*path)).cloned().collect()
    }

    /// Whether so many objects of a kind would be removed with these files that a second look is needed.
    pub(super) fn is_doubtful(&self, absent: &[Path]) -> bool {
        let absent: BTreeSet<_> = absent.iter().collect();
        let (mut gone, mut known) = ([0_usize; ObjectKind::ALL.len()], [0_usize; ObjectKind::ALL.len()]);
        for (object, files) in &self.owners {
            known[object.kind as usize] += 1;
            gone[object.kind as usize] += usize::from(files.iter().all(|file| absent.contains(file)));
        }
        gone.into_iter().zip(known).any(|(gone, known)| removal::is_doubtful(gone, known))
    }

    /// Whether there is an object of one of these kinds.
    pub(super) fn has_any(&self, kinds: &[ObjectKind]) -> bool {
        self.owners.keys().any(|object| kinds.contains(&object.kind))
    }

    /// The file that an object is taken from.
    pub(super) fn file_of(&self, object: &ObjectRef) -> Option<&Path> {
        self.owners.get(object)?.first()
    }

    /// The new contents of a file, given its previous ones: objects of an invalid document stay, as broken.
    fn file(&self, path: &Path, parsed: Parsed) -> File {
        let Parsed { objects, broken, faults, remarks, ignored: _ } = parsed;
        let mut faulty = Faulty { faults, ..Faulty::default() };
        let mut entries = Entries::default();
        for (object, line) in objects {
            let name = object.reference();
            let location = location(path, line);
            match entries.get(&name) {
                Some(Entry::Good { location: first, .. }) => faulty.problems.push(Problem {
                    object: name.into(),
                    field: String::new(),
                    severity: Severity::Overridden,
                    reason: format!(
                        "it is defined twice in this file: the first definition, at {first}, is used"
                    ),
                    location: location.to_string(),
                }),
                _ => drop(entries.insert(name, Entry::Good { object, location })),
            }
        }
        for (name, fault) in broken {
            let bad = problem(name.clone().into(), Severity::Rejected, path, &fault);
            match entries.contains_key(&name) {
                true => faulty.problems.push(bad),
                false => drop(entries.insert(name, Entry::Bad(Box::new(bad)))),
            }
        }
        let remarks =
            remarks.iter().map(|(name, fault)| problem(name.clone().into(), Severity::Warning, path, fault));
        faulty.problems.extend(remarks);
        // Anything that the file had and does not show any more may be the invalid document.
        let had = self.files.get(path).map(|had| had.entries.keys().cloned().collect());
        let had = had.or_else(|| self.remembered.get(path).cloned()).unwrap_or_default();
        let is_faulty = !faulty.problems.is_empty() || !faulty.faults.is_empty();
        let mut file = File { entries, faulty: is_faulty.then(|| Box::new(faulty)) };
        file.suspect(path, had);
        file
    }

    /// Sets the contents of a file, and records the previous state of each changed object, and the files whose problems
    /// changed.
    fn replace(
        &mut self,
        path: &Path,
        file: Option<File>,
        before: &mut BTreeMap<ObjectRef, Option<Entry>>,
        touched: &mut BTreeSet<Path>,
    ) {
        touched.insert(Arc::clone(path));
        // Once a file was read, its contents are known from it alone.
        self.remembered.remove(path);
        let old = self.files.remove(path).unwrap_or_default().entries;
        let file = file.unwrap_or_default();
        let new = &file.entries;
        let names: BTreeSet<_> = old.keys().chain(new.keys()).cloned().collect();
        for name in names {
            let (was, is) = (old.get(&name), new.get(&name));
            if let (Some(was), Some(is)) = (was, is)
                && was.says_the_same(is)
                && was.location() == is.location()
            {
                continue;
            }
            before.entry(name.clone()).or_insert_with(|| {
                let first = self.owners.get(&name).and_then(FewOf::first)?;
                if first == path { was.cloned() } else { self.files.get(first)?.entries.get(&name).cloned() }
            });
            match (was, is) {
                (None, Some(_)) => {
                    let owners = self.owners.entry(name.clone()).or_default();
                    owners.insert(Arc::clone(path));
                    touched.extend(owners.iter().cloned());
                }
                (Some(_), None) => {
                    if let Some(owners) = self.owners.get_mut(&name) {
                        owners.remove(path);
                        touched.extend(owners.iter().cloned());
                        if owners.is_empty() {
                            self.owners.remove(&name);
                        }
                    }
                }
                _ => {}
            }
        }
        if !new.is_empty() || file.faulty.is_some() {
            self.files.insert(Arc::clone(path), file);
        }
    }

    /// The event of an object that was `before`.
    fn event(&self, object: ObjectRef, before: Option<&Entry>) -> Option<Event> {
        let after = self.file_of(&object).and_then(|file| self.files.get(file)?.entries.get(&object));
        match (before, after) {
            (None, None) => None,
            (Some(before), Some(after)) if before.says_the_same(after) => {
                let (was, location) = (before.location(), after.location());
                (was != location).then(|| Event::Moved { object, location: location.into() })
            }
            (_, Some(Entry::Good { object, location })) => {
                Some(Event::Applied { object: object.clone(), location: Arc::clone(location) })
            }
            (_, Some(Entry::Bad(problem))) => {
                // In a folder an object is identified by its name; it has no uid.
                Some(Event::Broken { object, uid: "".into(), problem: Problem::clone(problem) })
            }
            (Some(_), None) => Some(Event::Deleted(object)),
        }
    }
}

fn location(path: &Path, line: usize) -> Arc<str> {
    format!("{path}:{line}").into()
}

fn problem(object: Subject, severity: Severity, path: &Path, fault: &Fault) -> Problem {
    let Fault { line, field, reason } = fault;
    let location = location(path, *line).to_string();
    Problem { object, field: field.clone(), severity, reason: reason.clone(), location }
}

#[cfg(test)]
mod tests;
