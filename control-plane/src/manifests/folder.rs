//! What is in the folder: which file has which object, and what a change of files means for objects. Pure.
//!
//! **Invariant:** the events of any sequence of changes lead to the same objects as reading the final files at once,
//! and a change costs the objects of the files that it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::document::{Fault, Parsed};
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::removal;

/// A file, as its path within the folder: `a/web.yaml`. Ordered by bytes.
pub(super) type Path = Arc<str>;

/// What a look at a path found.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Content {
    /// Nothing: the file, or the folder of that name with all its files, is no more.
    Gone,
    /// A file that is text.
    Text(Parsed),
    /// A file, but it cannot be read; why.
    Unreadable(String),
}

/// All files and their objects.
#[derive(Debug, Default)]
pub(super) struct Folder {
    files: BTreeMap<Path, Entries>,
    /// The files that have an object; the first wins.
    owners: HashMap<ObjectRef, BTreeSet<Path>>,
    /// Objects that are on hold, by the file that had them: what a file that is bad from the start may have.
    remembered: BTreeMap<Path, Vec<ObjectRef>>,
}

type Entries = BTreeMap<ObjectRef, Entry>;

/// One object in one file.
#[derive(Clone, Debug)]
enum Entry {
    Good { object: Object, location: Arc<str> },
    Bad(Problem),
}

impl Entry {
    /// Whether nothing changed that anybody has to hear of. A line that moved is nothing.
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Good { object: a, .. }, Self::Good { object: b, .. }) => a == b,
            (Self::Bad(a), Self::Bad(b)) => a == b,
            _ => false,
        }
    }
}

/// What came of a change.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// For the index, in order of the objects.
    pub(super) events: Vec<Event>,
    /// For the log: what no event can say.
    pub(super) warnings: Vec<String>,
    /// API version and kind of what is not read.
    pub(super) ignored: BTreeSet<String>,
}

impl Folder {
    /// An empty folder, and which objects on hold came from which file.
    pub(super) fn new(remembered: BTreeMap<Path, Vec<ObjectRef>>) -> Self {
        Self { remembered, ..Self::default() }
    }

    /// Takes in what a look at some paths found.
    pub(super) fn update(&mut self, found: impl IntoIterator<Item = (Path, Content)>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut before = BTreeMap::new();
        for (path, content) in found {
            match content {
                Content::Gone => {
                    for file in self.at_or_below(&path) {
                        self.replace(&file, None, &mut before, &mut outcome);
                    }
                }
                Content::Text(parsed) => {
                    let entries = self.entries(&path, parsed, &mut outcome);
                    self.replace(&path, Some(entries), &mut before, &mut outcome);
                }
                Content::Unreadable(reason) => {
                    let fault = Fault { line: 1, field: String::new(), reason };
                    let parsed = Parsed { faults: vec![fault], ..Parsed::default() };
                    let entries = self.entries(&path, parsed, &mut outcome);
                    self.replace(&path, Some(entries), &mut before, &mut outcome);
                }
            }
        }
        outcome.events =
            before.into_iter().filter_map(|(object, before)| self.event(object, before.as_ref())).collect();
        outcome
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
    fn entries(&self, path: &Path, parsed: Parsed, outcome: &mut Outcome) -> Entries {
        let Parsed { objects, broken, faults, ignored } = parsed;
        outcome.ignored.extend(ignored);
        let mut entries = Entries::new();
        for (object, line) in objects {
            let name = object.reference();
            if entries.contains_key(&name) {
                outcome.warnings.push(format!(
                    "{name} stands twice in {path}, the second on line {line}: the first is taken"
                ));
                continue;
            }
            entries.insert(name, Entry::Good { object, location: location(path, line) });
        }
        for (name, fault) in broken {
            let bad = Entry::Bad(problem(&name, path, &fault));
            entries.entry(name).or_insert(bad);
        }
        for Fault { line, field, reason } in &faults {
            let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
            outcome.warnings.push(format!("{path}:{line}: {field}{reason}"));
        }
        if let Some(fault) = faults.first() {
            // Nobody can tell which object the bad document is: whatever the file had and no longer shows may be it.
            let had = self.files.get(path).map(|had| had.keys().cloned().collect());
            let had = had.or_else(|| self.remembered.get(path).cloned()).unwrap_or_default();
            for name in had {
                let bad = Entry::Bad(problem(&name, path, fault));
                entries.entry(name).or_insert(bad);
            }
        }
        entries
    }

    /// Gives a file new entries and notes what each object that changes in it was before.
    fn replace(
        &mut self,
        path: &Path,
        entries: Option<Entries>,
        before: &mut BTreeMap<ObjectRef, Option<Entry>>,
        outcome: &mut Outcome,
    ) {
        // Once a file was read, what it has is known from it alone.
        self.remembered.remove(path);
        let old = self.files.remove(path).unwrap_or_default();
        let new = entries.unwrap_or_default();
        let names: BTreeSet<_> = old.keys().chain(new.keys()).cloned().collect();
        for name in names {
            let (was, is) = (old.get(&name), new.get(&name));
            if let (Some(was), Some(is)) = (was, is)
                && was.says_the_same(is)
            {
                continue;
            }
            before.entry(name.clone()).or_insert_with(|| {
                let first = self.owners.get(&name).and_then(BTreeSet::first)?;
                if first == path { was.cloned() } else { self.files.get(first)?.get(&name).cloned() }
            });
            match (was, is) {
                (None, Some(_)) => {
                    let owners = self.owners.entry(name.clone()).or_default();
                    owners.insert(Arc::clone(path));
                    if owners.len() > 1 {
                        let listed: Vec<_> = owners.iter().map(|path| &**path).collect();
                        outcome
                            .warnings
                            .push(format!("{name} is in {}: the first is taken", listed.join(" and ")));
                    }
                }
                (Some(_), None) => {
                    if let Some(owners) = self.owners.get_mut(&name) {
                        owners.remove(path);
                        if owners.is_empty() {
                            self.owners.remove(&name);
                        }
                    }
                }
                _ => {}
            }
        }
        if !new.is_empty() {
            self.files.insert(Arc::clone(path), new);
        }
    }

    /// What to tell of an object that was `before`.
    fn event(&self, object: ObjectRef, before: Option<&Entry>) -> Option<Event> {
        let after = self.file_of(&object).and_then(|file| self.files.get(file)?.get(&object));
        match (before, after) {
            (None, None) => None,
            (Some(before), Some(after)) if before.says_the_same(after) => None,
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

    /// The file of that path, or all files in the folder of that path.
    fn at_or_below(&self, path: &Path) -> Vec<Path> {
        let below = format!("{path}/");
        self.files
            .range::<str, _>((Bound::Included(&**path), Bound::Unbounded))
            .map(|(file, _)| file)
            // What sorts between a path and what is below it has a byte before '/' there: `web-2` before `web/a`.
            .take_while(|file| file.starts_with(&**path))
            .filter(|file| *file == path || file.starts_with(&below))
            .cloned()
            .collect()
    }
}

fn location(path: &Path, line: usize) -> Arc<str> {
    format!("{path}:{line}").into()
}

fn problem(object: &ObjectRef, path: &Path, fault: &Fault) -> Problem {
    Problem {
        object: object.clone(),
        field: fault.field.clone(),
        severity: Severity::Rejected,
        reason: fault.reason.clone(),
        location: location(path, fault.line).to_string(),
    }
}

#[cfg(test)]
mod tests;
