use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::codec::path::normalise;

/// A path as a single reader sees it, computed from the beginning: what [`segments`] would be without shared
/// intermediate results.
fn one_by_one(raw: &[u8], decode: Decode, parameters: Parameters, backslashes: Backslashes) -> Vec<u8> {
    let mut path = raw.to_vec();
    for round in 0..=decode.rounds() {
        if round > 0 {
            path = decode.once(&path);
        }
        if backslashes == Backslashes::Always || (backslashes == Backslashes::Written && round == 0) {
            to_slashes(&mut path);
        }
        path = parameters.cut(path, round);
    }
    if backslashes == Backslashes::Last {
        to_slashes(&mut path);
    }
    path
}

/// All readings, and whether a normal form cures them, without a limit on the work.
fn all(raw: &[u8]) -> BTreeSet<(bool, Vec<u8>)> {
    let mut found = Vec::new();
    let mut add = |raw: &[u8], (before, host, parameters, backslashes): (_, _, Parameters, _)| {
        let mut known = Vec::new();
        for decode in DECODES {
            if parameters.rounds() > decode.rounds() {
                continue;
            }
            let path = one_by_one(raw, decode, parameters, backslashes);
            let reading =
                Reading { decode, parameters, backslashes, host, merge: false, dots: false, before };
            for path in with_and_without_slash(raw, path) {
                if !known.contains(&path) {
                    resolve(reading, &path, &mut found);
                    known.push(path);
                }
            }
        }
    };
    let mut hops = vec![(None, raw.to_vec())];
    for path in std::iter::once(raw).chain(behind_host(raw).map(|(_, rest)| rest)) {
        for cleaner in CLEANERS {
            hops.extend(
                cleaned(path, cleaner).into_iter().map(|path| (Some(Before::Cleaned(cleaner)), path)),
            );
        }
    }
    let cuts = [0, 1, 2].map(Parameters::CutAfter).into_iter().chain([0, 1].map(Parameters::EndsAfter));
    for (before, raw) in hops {
        for parameters in [Parameters::Kept].into_iter().chain(cuts.clone()) {
            for backslashes in
                [Backslashes::Kept, Backslashes::Written, Backslashes::Always, Backslashes::Last]
            {
                add(&raw, (before, false, parameters, backslashes));
            }
        }
        for (backslashes, rest) in behind_host(&raw) {
            for parameters in [Parameters::Kept].into_iter().chain(cuts.clone()) {
                add(rest, (before, true, parameters, backslashes));
            }
        }
    }
    found.into_iter().map(|(reading, path)| (reading.is_curable(), path)).collect()
}

fn raw_path() -> impl Strategy<Value = Vec<u8>> {
    let parts = vec![
        "/", "/", "//", ".", "..", "a", "%2e", "%2F", "%", "%41", "%25", "2e", "5c", "%5c", "\\", ";", ";x",
        "%3b", "3B", "%252f", "%255c", "%00", "%20", "\u{e9}", "x=1",
    ];
    prop::collection::vec(select(parts), 0..14).prop_map(|parts| format!("/{}", parts.concat()).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_readers_have_in_common_is_read_once_and_nothing_is_left_out(raw in raw_path()) {
        // Where a path ends is looked for behind all of these.
        let found = readings(&raw).unwrap().into_iter().filter(|(reading, _)| !reading.is_of_end());
        let found: BTreeSet<_> = found.map(|(reading, path)| (reading.is_curable(), path)).collect();
        // Readings that cannot differ for this path are duplicates. A reading that no normal form cures may be
        // represented by an equal one that is cured, because the target is checked again.
        let strict = |all: &BTreeSet<(bool, Vec<u8>)>| -> BTreeSet<Vec<u8>> {
            all.iter().map(|(_, path)| path.clone()).collect()
        };
        let all = all(&raw);
        prop_assert_eq!(strict(&found), strict(&all));
        let cured = |all: &BTreeSet<(bool, Vec<u8>)>| -> BTreeSet<_> {
            all.iter().filter(|(is_cured, _)| *is_cured).cloned().collect()
        };
        prop_assert_eq!(cured(&found), cured(&all));
    }
}

/// A path of at most this length, repeating this part.
fn repeated(part: &str, length: usize) -> Vec<u8> {
    format!("/{}", part.repeat((length - 1) / part.len())).into_bytes()
}

/// Reading an 8 KiB path with everything that readers disagree on used to take milliseconds.
#[test]
fn reading_costs_so_much_an_octet() {
    for part in [
        "a;b\\c%5c/",
        "%2f;\\",
        "a;b\\c%255c//../",
        "//a;b%2f../",
        "%2e;a%25/",
        "%25",
        "/",
        ";/",
        "a%3f;\\b%2f../",
        "%253f/",
        "%3f",
    ] {
        for length in [100, 1_000, 8_000, 64_000, 250_000] {
            let raw = repeated(part, length);
            // A reading consists of at most eight paths: as it is, merged, resolved in two ways, and both.
            // Again for where it ends.
            let most = 2 * 8 * (AHEAD + TIMES * raw.len());
            let read: usize = readings(&raw).into_iter().flatten().map(|(_, path)| path.len()).sum();
            assert!(read <= most, "{part} of {length}: {read}");
        }
    }
}

#[test]
fn path_with_too_many_readings_is_refused() {
    let verdict = |part, length| {
        let raw = repeated(part, length);
        forward(&raw, &normalise(&raw).unwrap(), <[u8]>::is_empty, |chosen, read, _| chosen != read)
    };
    for (part, length) in [("a;b\\c%5c/", 750), ("a;b\\c%255c//../", 250)] {
        assert_eq!(verdict(part, length), Verdict::Raw, "{part}");
        assert_eq!(verdict(part, 8_000), Verdict::Refuse, "{part}");
    }
    for (part, length) in
        [("a;v=1%20b/", 8_000), ("a\\b%20/", 8_000), ("%E3%81%82%2F", 8_000), ("%20a/", 200_000)]
    {
        assert_eq!(verdict(part, length), Verdict::Raw, "{part}");
    }
}
