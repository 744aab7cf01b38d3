//! What is in the folder: which file has which object, and what a change of files means for objects. Pure.
//!
//! **Invariant:** the events of any sequence of changes lead to the same objects as reading the final files at once,
//! and a change costs the objects of the files that it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::few::{Few, FewOf};

use super::document::{Fault, Parsed};
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity, Subject};
use crate::removal;

/// A file, as its path within the folder: `a/web.yaml`. Ordered by bytes.
pub(super) type Path = Arc<str>;

/// What a look at a path found.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Content {
    /// Nothing: the file is no more.
    Gone,
    /// A file that is text.
    Text(Parsed),
    /// A file, but it cannot be read; why.
    Unreadable(String),
}

/// All files and their objects.
#[derive(Debug, Default)]
pub(super) struct Folder {
    files: BTreeMap<Path, File>,
    /// The files that have an object; the first wins.
    owners: HashMap<ObjectRef, FewOf<Path>>,
    /// Objects that are on hold, by the file that had them: what a file that is bad from the start may have.
    remembered: BTreeMap<Path, Vec<ObjectRef>>,
    /// What looks as if it were to be read and is not, and why.
    skipped: BTreeMap<Path, String>,
    /// What was told of files.
    noted: BTreeMap<Path, Vec<Problem>>,
}

/// More problems of one file than this are only counted.
const MAX_NOTES: usize = 100;

/// What one file says.
#[derive(Clone, Debug, Default)]
struct File {
    entries: Entries,
    /// What no entry tells.
    problems: Vec<Problem>,
    /// What is wrong with documents of which nobody can tell which object they are.
    faults: Vec<Fault>,
    /// Whether the first of them stands in entries: for what the file had, or has on hold, and does not show.
    is_placed: bool,
}

impl File {
    /// Takes these for what the bad documents may be, as far as the file does not show them.
    fn suspect(&mut self, path: &Path, objects: Vec<ObjectRef>) {
        let Some(fault) = self.faults.first() else {
            return;
        };
        for name in objects {
            if !self.entries.contains_key(&name) {
                let bad = problem(name.clone().into(), Severity::Rejected, path, fault);
                self.entries.insert(name, Entry::Bad(bad));
                self.is_placed = true;
            }
        }
    }

    /// What is wrong with it as a file.
    fn told(&self, path: &Path) -> impl Iterator<Item = Problem> {
        let faults = self.faults.iter().skip(usize::from(self.is_placed));
        faults.map(|fault| problem(Subject::File(Arc::clone(path)), Severity::Rejected, path, fault))
    }
}

type Entries = Few<ObjectRef, Entry>;

/// One object in one file.
#[derive(Clone, Debug)]
enum Entry {
    Good { object: Object, location: Arc<str> },
    Bad(Problem),
}

impl Entry {
    /// Whether nothing changed but, perhaps, the line of a good one.
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

/// What came of a change.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// For the index: objects in their order, then files.
    pub(super) events: Vec<Event>,
    /// API version and kind of what is not read.
    pub(super) ignored: BTreeSet<String>,
}

impl Folder {
    /// An empty folder, and which objects on hold came from which file.
    pub(super) fn new(remembered: BTreeMap<Path, Vec<ObjectRef>>) -> Self {
        Self { remembered, ..Self::default() }
    }

    /// Takes in which objects on hold came from which file. Of a file that was read that is known better, unless a document
    /// of it may be any object: then it is one of these, as if they had been known from the start.
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

    /// Takes in what a look at some paths found.
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

    /// What to tell of objects that were `before`, and of files that have something new to tell.
    fn events(&mut self, before: BTreeMap<ObjectRef, Option<Entry>>, touched: BTreeSet<Path>) -> Vec<Event> {
        let objects = before.into_iter().filter_map(|(object, before)| self.event(object, before.as_ref()));
        let mut events: Vec<_> = objects.collect();
        events.extend(touched.into_iter().filter_map(|file| self.note(file)));
        events
    }

    /// Takes in what looks as if it were to be read and is not.
    pub(super) fn skip(&mut self, skipped: BTreeMap<Path, String>) -> Vec<Event> {
        let before = std::mem::replace(&mut self.skipped, skipped);
        let files: BTreeSet<_> = before.into_keys().chain(self.skipped.keys().cloned()).collect();
        files.into_iter().filter_map(|file| self.note(file)).collect()
    }

    /// What is wrong with a file, where that is something else than was told.
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
            problems.extend(file.problems.iter().cloned().chain(file.told(&path)));
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
                reason: format!("{more} more problems are in it"),
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

    /// That an object of a file stands in another one too, which comes first.
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
            reason: format!("it stands in {first} too, which comes first by name: that one counts"),
            location,
        })
    }

    /// The known files that a scan of the whole folder did not find.
    pub(super) fn absent(&self, present: &BTreeSet<Path>) -> Vec<Path> {
        self.files.keys().filter(|path| !present.contains(*path)).cloned().collect()
    }

    /// Whether the objects that would go with these files are so many of a kind that a second look is due.
    pub(super) fn is_doubtful(&self, absent: &[Path]) -> bool {
        let absent: BTreeSet<_> = absent.iter().collect();
        let (mut gone, mut known) = ([0_usize; ObjectKind::ALL.len()], [0_usize; ObjectKind::ALL.len()]);
        for (object, files) in &self.owners {
            known[object.kind as usize] += 1;
            gone[object.kind as usize] += usize::from(files.iter().all(|file| absent.contains(file)));
        }
        gone.into_iter().zip(known).any(|(gone, known)| removal::is_doubtful(gone, known))
    }

    /// Whether there is any object of these kinds.
    pub(super) fn has_any(&self, kinds: &[ObjectKind]) -> bool {
        self.owners.keys().any(|object| kinds.contains(&object.kind))
    }

    /// The file that an object is taken from.
    pub(super) fn file_of(&self, object: &ObjectRef) -> Option<&Path> {
        self.owners.get(object)?.first()
    }

    /// What a file has, given what it had: what a bad document had stays, as bad.
    fn file(&self, path: &Path, parsed: Parsed) -> File {
        let Parsed { objects, broken, faults, remarks, ignored: _ } = parsed;
        let mut file = File::default();
        let entries = &mut file.entries;
        for (object, line) in objects {
            let name = object.reference();
            let location = location(path, line);
            match entries.get(&name) {
                Some(Entry::Good { location: first, .. }) => file.problems.push(Problem {
                    object: name.into(),
                    field: String::new(),
                    severity: Severity::Overridden,
                    reason: format!("it stands twice in this file, first at {first}: that one counts"),
                    location: location.to_string(),
                }),
                _ => drop(entries.insert(name, Entry::Good { object, location })),
            }
        }
        for (name, fault) in broken {
            let bad = problem(name.clone().into(), Severity::Rejected, path, &fault);
            match entries.contains_key(&name) {
                true => file.problems.push(bad),
                false => drop(entries.insert(name, Entry::Bad(bad))),
            }
        }
        let remarks =
            remarks.iter().map(|(name, fault)| problem(name.clone().into(), Severity::Warning, path, fault));
        file.problems.extend(remarks);
        // Whatever the file had and no longer shows may be the bad document.
        let had = self.files.get(path).map(|had| had.entries.keys().cloned().collect());
        let had = had.or_else(|| self.remembered.get(path).cloned()).unwrap_or_default();
        file.faults = faults;
        file.suspect(path, had);
        file
    }

    /// Gives a file what it has now, and notes what each object that changes in it was before, and which files have
    /// something new to tell.
    fn replace(
        &mut self,
        path: &Path,
        file: Option<File>,
        before: &mut BTreeMap<ObjectRef, Option<Entry>>,
        touched: &mut BTreeSet<Path>,
    ) {
        touched.insert(Arc::clone(path));
        // Once a file was read, what it has is known from it alone.
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
        if !new.is_empty() || !file.problems.is_empty() || !file.faults.is_empty() {
            self.files.insert(Arc::clone(path), file);
        }
    }

    /// What to tell of an object that was `before`.
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
                // In a folder an object is who its name says; it has no uid.
                Some(Event::Broken { object, uid: "".into(), problem: problem.clone() })
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
