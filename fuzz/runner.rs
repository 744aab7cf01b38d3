//! Runs the body of a fuzz target on a stable toolchain: each file of its corpus, then seeded mutations of them.
//!
//! Included by the crates that own bodies. `PROPTEST_CASES` is the number of mutations; a failure is shrunk and its
//! seed saved, as with any property test.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

/// Tokens that inputs are made of.
const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    ":",
    ";",
    "/",
    "//",
    "/..",
    "/.",
    "%2f",
    "%2e",
    "%25",
    "%00",
    "\\",
    "?",
    "#",
    " ",
    "\t",
    "\"",
    "---\n",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "0",
    "1",
    "ffffffffffffffff",
    "18446744073709551616",
    "-1",
    "Host: b.test\r\n",
    "Content-Length: 1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "0\r\n\r\n",
    "null",
    "true",
    "&a",
    "*a",
    "!!binary",
    "metadata:\n",
    "\u{feff}",
    "\u{0}",
];

/// One mutation.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Put(Index, u8),
    Insert(Index, &'static str),
    Remove(Index, Index),
    Repeat(Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Put(at, byte)),
        (any::<Index>(), select(WORDS)).prop_map(|(at, word)| Edit::Insert(at, word)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Remove(from, to)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Repeat(from, to)),
    ]
}

fn apply(data: &mut Vec<u8>, edit: &Edit) {
    let range = |data: &[u8], one: &Index, other: &Index| {
        let (one, other) = (one.index(data.len() + 1), other.index(data.len() + 1));
        one.min(other)..one.max(other).min(one.min(other) + 64)
    };
    match edit {
        Edit::Flip(at, bit) if !data.is_empty() => {
            let at = at.index(data.len());
            data[at] ^= 1 << bit;
        }
        Edit::Put(at, byte) if !data.is_empty() => {
            let at = at.index(data.len());
            data[at] = *byte;
        }
        Edit::Flip(..) | Edit::Put(..) => {}
        Edit::Insert(at, word) => {
            let at = at.index(data.len() + 1);
            data.splice(at..at, word.bytes());
        }
        Edit::Remove(from, to) => {
            let range = range(data, from, to);
            data.drain(range);
        }
        Edit::Repeat(from, to) => {
            let piece = data[range(data, from, to)].to_vec();
            data.extend(piece);
        }
    }
}

/// Runs a body over the corpus of its name.
pub(super) fn run(name: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut seeds: Vec<Vec<u8>> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seed in {}", folder.display());
    seeds.iter().for_each(|seed| body(seed));
    let strategy = (select(seeds), prop::collection::vec(edit(), 1..12));
    let ran = TestRunner::new(Config::default()).run(&strategy, |(mut data, edits)| {
        edits.iter().for_each(|edit| apply(&mut data, edit));
        body(&data);
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{name}: {failure}"));
}
