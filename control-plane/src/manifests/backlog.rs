//! Files that were read and are not parsed yet: small changes are parsed at once, large ones in the background.
//!
//! **Invariant:** the last version of a file that was read is used, however long parsing an earlier one takes; files
//! that were read together are reported together.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::task::JoinSet;

use super::disk::{Raw, ScannedFiles};
use super::document;
use super::folder::{Content, Path};

/// Up to this size in bytes, parsing takes no noticeable time.
const SMALL: usize = 512 << 10;

/// Parsed contents of files that were read together.
pub(super) type Parsed = BTreeMap<Path, Content>;

/// Contents waiting to be parsed.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Counts the batches.
    number: u64,
    /// The last batch of each file, while anything waits.
    newest: HashMap<Path, u64>,
    waiting: VecDeque<(u64, ScannedFiles)>,
    /// Runs one at a time: memory and processors are shared.
    running: JoinSet<(u64, Parsed)>,
}

impl Backlog {
    /// Takes what was read. Returns it if parsing it takes no time.
    pub(super) fn take(&mut self, found: ScannedFiles) -> Option<ScannedFiles> {
        self.number += 1;
        let is_small = found.values().map(length).sum::<usize>() <= SMALL;
        if is_small && self.is_idle() {
            return Some(found);
        }
        for path in found.keys() {
            self.newest.insert(Path::clone(path), self.number);
        }
        if is_small {
            return Some(found);
        }
        self.waiting.push_back((self.number, found));
        self.start();
        None
    }

    /// The next parsed batch, without files that were read again since. Pending if nothing waits.
    pub(super) async fn next(&mut self) -> Parsed {
        loop {
            let Some(done) = self.running.join_next().await else {
                return std::future::pending().await;
            };
            self.start();
            // Parsing does not panic, and nothing aborts it.
            let Ok((number, mut parsed)) = done else {
                continue;
            };
            parsed.retain(|path, _| self.newest.get(path) == Some(&number));
            if self.is_idle() {
                self.newest.clear();
            }
            return parsed;
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    fn start(&mut self) {
        if self.running.is_empty()
            && let Some((number, found)) = self.waiting.pop_front()
        {
            self.running.spawn_blocking(move || (number, parse(found)));
        }
    }
}

fn length(raw: &Raw) -> usize {
    match raw {
        Raw::Text(text) => text.len(),
        Raw::Gone | Raw::Unreadable(_) => 0,
    }
}

/// Parses all of it. A file that makes the parser panic is unreadable; the others are not affected.
pub(super) fn parse(found: ScannedFiles) -> Parsed {
    parse_by(found, document::parse)
}

fn parse_by(found: ScannedFiles, parser: impl Fn(&str) -> document::Parsed) -> Parsed {
    let content = |path: &Path, raw| match raw {
        Raw::Gone => Content::Gone,
        Raw::Text(text) => match catch_unwind(AssertUnwindSafe(|| parser(&text))) {
            Ok(parsed) => Content::Text(parsed.named(path)),
            Err(_) => {
                Content::Unreadable("expected a document that the parser survives: it panicked".to_owned())
            }
        },
        Raw::Unreadable(reason) => Content::Unreadable(reason),
    };
    found
        .into_iter()
        .map(|(path, raw)| {
            let content = content(&path, raw);
            (path, content)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, length: usize) -> Raw {
        let head = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n");
        Raw::Text(head + &format!("  a: \"{}\"\n", "x".repeat(length)))
    }

    fn found<const N: usize>(files: [(&str, Raw); N]) -> ScannedFiles {
        files.into_iter().map(|(path, raw)| (path.into(), raw)).collect()
    }

    #[test]
    fn a_file_that_makes_the_parser_panic_is_unreadable_alone() {
        let parsed = parse_by(found([("bad", text("bad", 1)), ("good", text("good", 1))]), |text| {
            assert!(!text.contains("name: bad"), "the parser's fault");
            document::parse(text)
        });
        assert!(matches!(&parsed["bad"], Content::Unreadable(_)), "{parsed:?}");
        let Content::Text(good) = &parsed["good"] else { panic!("{parsed:?}") };
        assert_eq!(&*good.objects[0].0.metadata().name, "good");
    }

    #[tokio::test]
    async fn what_is_small_does_not_wait_and_what_came_last_counts() {
        let mut backlog = Backlog::default();
        assert!(backlog.take(found([("small", text("a", 1))])).is_some());
        assert!(backlog.take(found([("large", text("b", SMALL)), ("beside", text("c", 1))])).is_none());
        assert!(backlog.take(found([("large", text("d", SMALL + 1))])).is_none());
        let small = backlog.take(found([("small", text("e", 1)), ("beside", Raw::Gone)])).unwrap();
        assert_eq!(small["beside"], Raw::Gone, "it overtakes");
        let first = backlog.next().await;
        assert_eq!(first, Parsed::new(), "all of it was read again since");
        let second = backlog.next().await;
        let Content::Text(parsed) = &second["large"] else { panic!("{second:?}") };
        assert_eq!(&*parsed.objects[0].0.metadata().name, "d");
        assert!(backlog.is_idle() && backlog.newest.is_empty());
    }
}
