//! What other readers make of a raw path, and what to send them so that they agree with the route that was chosen.

use std::borrow::Cow;

use memchr::memchr;

use super::octets::{
    cut_parameters, decode_except_slashes, decode_leniently, decode_unreserved, merge, remove_dots,
    to_slashes,
};
use super::{Normalised, re_encode};

/// Line breaks that a path may have: each is a further way to read it.
const BREAKS: usize = 4;

/// Octets that are read of a path in all the ways together, of one that is short.
const AHEAD: usize = 64 * 1024;

/// As many times its length more. Only what has backslashes, parameters and escapes all at once takes more than both, when it
/// is longer than a KiB and a half, and that is long for nobody's sake but that of who wants it read.
const TIMES: usize = 8;

/// A way in which some backend reads a raw path: what it does, in this order. Backends differ in each step, and real ones
/// do the steps in more than one order, so nearly every combination is somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    decode: Decode,
    parameters: Parameters,
    backslashes: Backslashes,
    /// What stands between two slashes at its beginning and the next one is a host: who parses a target as a reference
    /// (RFC 3986 section 4.2), as `new URL(request.url, base)` of Node does.
    host: bool,
    /// Repeated slashes are one.
    merge: bool,
    /// Dot segments are removed; a climb above the root stops there.
    dots: bool,
}

/// Which escapes are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Decode {
    /// Letters, digits and `-._~`, and what can be spelled in no other way (`%20`, `%C3`).
    Unreserved,
    /// All but slashes and backslashes.
    ExceptSlashes,
    /// All.
    All,
    /// All, and then again.
    Twice,
}

/// What becomes of a `;` and what follows it in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Parameters {
    /// It is part of the segment.
    Kept,
    /// It is cut up to the next slash after so many rounds of decoding. After none: Tomcat, where an escaped slash goes
    /// with the rest; after the first of two: a filter in front of a framework.
    CutAfter(usize),
}

/// Whether a backslash is a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Backslashes {
    /// It is not.
    Kept,
    /// Where it is written so, and not where it is escaped: URL parsers.
    Written,
    /// Before parameters are cut, and again in what is decoded after.
    Always,
    /// After parameters were cut: Tomcat.
    Last,
}

impl Decode {
    /// How often a path is decoded.
    fn rounds(self) -> usize {
        1 + usize::from(self == Self::Twice)
    }

    /// The first round. That of who decodes twice is that of who decodes all.
    fn once(self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::Unreserved => decode_unreserved(path),
            Self::ExceptSlashes => decode_except_slashes(path),
            Self::All | Self::Twice => decode_leniently(path),
        }
    }

    /// Number of its first round among those.
    fn place(self) -> usize {
        match self {
            Self::Unreserved => 0,
            Self::ExceptSlashes => 1,
            Self::All | Self::Twice => 2,
        }
    }
}

impl Reading {
    /// Whether it agrees with nginx' once it is sent the normal form. nginx does not read backslashes, parameters or
    /// double escapes, so its normal form still holds them.
    fn is_curable(self) -> bool {
        self.decode != Decode::Twice
            && self.parameters == Parameters::Kept
            && self.backslashes == Backslashes::Kept
    }
}

/// What all kinds of readers make of a raw path, each path once of those that a normal form cures and once of the others.
/// Readings that no path of this kind can set apart are left out: a path without a backslash is read alike by those who
/// differ in backslashes only. `None`: there are more than anybody needs.
///
/// **Invariant:** bounded work: at most 60 times all of it is read, and at most [`AHEAD`] and [`TIMES`] of it together.
pub(crate) fn readings(raw: &[u8]) -> Option<Vec<(Reading, Vec<u8>)>> {
    let once = decode_leniently(raw);
    let every = decode_leniently(&once);
    let has = |octet| [raw, &once, &every].iter().any(|path| memchr(octet, path).is_some());
    let (semicolon, backslash) = (has(b';'), has(b'\\'));
    let backslashes: &[Backslashes] = match (backslash, semicolon) {
        (true, true) => &[Backslashes::Kept, Backslashes::Written, Backslashes::Always, Backslashes::Last],
        (true, false) => &[Backslashes::Kept, Backslashes::Written, Backslashes::Last],
        (false, _) => &[Backslashes::Kept],
    };
    let mut cuts = vec![Parameters::Kept];
    if semicolon {
        cuts.extend((0..=Decode::Twice.rounds()).map(Parameters::CutAfter));
    }
    let mut found = Found { left: AHEAD + TIMES * raw.len(), ..Found::default() };
    let mut begun = Begun::new(raw);
    for parameters in cuts {
        for &backslashes in backslashes {
            found.add(&mut begun, (false, parameters, backslashes))?;
        }
    }
    for (backslashes, rest) in behind_host(raw) {
        // To who parses references `;` is a letter.
        found.add(&mut Begun::new(rest), (true, Parameters::Kept, backslashes))?;
    }
    Some(found.paths)
}

/// Readings so far.
#[derive(Default)]
struct Found {
    paths: Vec<(Reading, Vec<u8>)>,
    /// Paths as readers see their segments, and whether they are cured.
    known: Vec<(bool, Vec<u8>)>,
    /// Octets that may be read yet.
    left: usize,
}

impl Found {
    /// Adds what readers of one manner make of a path, however they decode it: of all of it, or of what is behind a host.
    /// `None`: it is too much.
    fn add(
        &mut self,
        begun: &mut Begun<'_>,
        (host, parameters, backslashes): (bool, Parameters, Backslashes),
    ) -> Option<()> {
        let mut mine: Vec<usize> = Vec::new();
        for decode in [Decode::Unreserved, Decode::All, Decode::ExceptSlashes, Decode::Twice] {
            if matches!(parameters, Parameters::CutAfter(rounds) if rounds > decode.rounds()) {
                continue;
            }
            self.left = self.left.checked_sub(begun.raw.len())?;
            let path = segments(begun, decode, parameters, backslashes);
            if mine.iter().any(|place| self.known[*place].1 == path) {
                continue;
            }
            let reading = Reading { decode, parameters, backslashes, host, merge: false, dots: false };
            let known = (reading.is_curable(), path);
            let place = self.known.iter().position(|it| *it == known);
            mine.push(place.unwrap_or(self.known.len()));
            if place.is_none() {
                resolve(reading, &known.1, &mut self.paths);
                self.known.push(known);
            }
        }
        Some(())
    }
}

/// What those take for the path who take what follows two slashes for a host: it ends at a slash, and where a backslash is
/// one (URL parsers of browsers, and of Node) at that, too.
fn behind_host(raw: &[u8]) -> impl Iterator<Item = (Backslashes, &[u8])> {
    let behind = |is_slash: fn(&u8) -> bool| {
        let host = raw.iter().position(|byte| !is_slash(byte)).unwrap_or(raw.len());
        let end = raw[host..].iter().position(is_slash);
        // Without a path it is that of the root.
        (host > 1).then(|| end.map_or(&b"/"[..], |end| &raw[host + end..]))
    };
    let kept = behind(|byte| *byte == b'/').map(|rest| (Backslashes::Kept, rest));
    let written = behind(|byte| matches!(byte, b'/' | b'\\')).map(|rest| (Backslashes::Written, rest));
    kept.into_iter().chain(written.filter(|_| raw.contains(&b'\\')))
}

/// A raw path, with what it is after the first round of decoding, which many readers have in common.
struct Begun<'a> {
    raw: &'a [u8],
    /// By who decodes, whether backslashes are slashes before, and whether parameters are cut before.
    once: [Option<Vec<u8>>; 12],
}

impl<'a> Begun<'a> {
    fn new(raw: &'a [u8]) -> Self {
        Self { raw, once: Default::default() }
    }

    fn once(&mut self, decode: Decode, has_slashes: bool, is_cut: bool) -> &[u8] {
        let place = decode.place() * 4 + usize::from(has_slashes) * 2 + usize::from(is_cut);
        self.once[place].get_or_insert_with(|| {
            let mut path = Cow::Borrowed(self.raw);
            if has_slashes {
                to_slashes(path.to_mut());
            }
            if is_cut {
                path = Cow::Owned(cut_parameters(&path));
            }
            decode.once(&path)
        })
    }
}

/// A raw path as a reader sees its segments.
fn segments(
    begun: &mut Begun<'_>,
    decode: Decode,
    parameters: Parameters,
    backslashes: Backslashes,
) -> Vec<u8> {
    let has_slashes = matches!(backslashes, Backslashes::Always | Backslashes::Written);
    let mut path = begun.once(decode, has_slashes, parameters == Parameters::CutAfter(0)).to_vec();
    for round in 1..=decode.rounds() {
        if round > 1 {
            path = decode.once(&path);
        }
        if backslashes == Backslashes::Always {
            to_slashes(&mut path);
        }
        if parameters == Parameters::CutAfter(round) {
            path = cut_parameters(&path);
        }
    }
    if backslashes == Backslashes::Last {
        to_slashes(&mut path);
    }
    path
}

/// Adds the paths that its segments stand for, with slashes merged and not.
fn resolve(reading: Reading, path: &[u8], found: &mut Vec<(Reading, Vec<u8>)>) {
    let merged = merge(path);
    let mergeable = merged.len() != path.len();
    for (merges, path) in [(false, path), (true, &merged)].into_iter().take(1 + usize::from(mergeable)) {
        let reading = Reading { merge: merges, ..reading };
        let resolved = remove_dots(path);
        // Jetty resolves first, and a framework above it merges what is left.
        let late = if mergeable && !merges { merge(&resolved) } else { Vec::new() };
        if !late.is_empty() && late != resolved {
            found.push((Reading { merge: true, dots: true, ..reading }, late));
        }
        found.push((Reading { dots: true, ..reading }, resolved));
        // WSGI and its like match what was decoded as it is. Who reads more into a path than that resolves dots as well.
        if reading.is_curable() {
            found.push((reading, path.to_vec()));
        }
    }
}

/// Which target a backend is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The target as the client sent it, as nginx does.
    Raw,
    /// This path in place of the client's, with the client's query: some reader would have taken the raw path for
    /// another route's.
    Normal(Vec<u8>),
    /// None: some reader would take any spelling for another route's. The answer is 400.
    Refuse,
}

/// Applies the dual-reading rule of security.md 2 to a path that was normalised from `raw`.
///
/// `route` tells which route and policy a path has; it is called only for readings that differ from the normal
/// form, and not at all for a path that is not suspicious.
pub(crate) fn forward<R: PartialEq>(
    raw: &[u8],
    normalised: &Normalised<'_>,
    mut route: impl FnMut(&[u8]) -> R,
) -> Verdict {
    if !normalised.suspicious {
        return Verdict::Raw;
    }
    let mut chosen: Option<R> = None;
    let mut strays = |path: &[u8]| {
        path != &*normalised.path && {
            let chosen = chosen.get_or_insert_with(|| route(&normalised.path));
            route(path) != *chosen
        }
    };
    let leads_elsewhere = |before: &[u8]| {
        // A segment that is none of dots may be one without what follows the line break.
        strays(before)
            || readings(&re_encode(before)).is_none_or(|read| read.iter().any(|(_, path)| strays(path)))
    };
    if before_breaks(&normalised.path).is_none_or(|mut some| some.any(leads_elsewhere)) {
        return Verdict::Refuse;
    }
    let mut astray = false;
    let Some(read) = readings(raw) else {
        return Verdict::Refuse;
    };
    for (reading, path) in read {
        if strays(&path) {
            if !reading.is_curable() {
                return Verdict::Refuse;
            }
            astray = true;
        }
    }
    if !astray {
        return Verdict::Raw;
    }
    let target = re_encode(&normalised.path);
    // What was harmless in the raw path need not be in the normal one: `/a\b/../c` and `/a\../b` change places.
    if readings(&target).is_none_or(|read| read.iter().any(|(_, path)| strays(path))) {
        return Verdict::Refuse;
    }
    Verdict::Normal(target)
}

/// What patterns see that stop at a line break: to them `.` is none, so `/(.*)` takes what stands before, and the rest of the
/// path is lost in a rewrite here or at a backend. `None`: more of them than anybody needs.
fn before_breaks(path: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let is_few = memchr::memchr_iter(b'\n', path).nth(BREAKS).is_none();
    is_few.then(|| memchr::memchr_iter(b'\n', path).map(|end| &path[..end]))
}

#[cfg(test)]
mod tests;
