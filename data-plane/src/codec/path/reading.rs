//! What other readers make of a raw path, and what to send them so that they agree with the route that was chosen.

use super::normal::{decode, hex};
use super::{Normalised, is_plain, re_encode};

/// Line breaks that a path may have: each is a further way to read it.
const BREAKS: usize = 4;

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

    fn once(self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::Unreserved => decode_unreserved(path),
            Self::ExceptSlashes => decode_if(path, |b| !matches!(b, b'/' | b'\\')),
            Self::All | Self::Twice => decode_leniently(path),
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

/// What all kinds of readers make of a raw path. Readings that no path of this kind can set apart are left out: a path
/// without a backslash is read alike by those who differ in backslashes only.
///
/// **Invariant:** bounded work: at most 150 readings, each linear in the path, which a head's limits bound.
pub(crate) fn readings(raw: &[u8]) -> Vec<(Reading, Vec<u8>)> {
    let mut found = Vec::new();
    let every = decode_twice(raw);
    let has =
        |octet| raw.contains(&octet) || decode_leniently(raw).contains(&octet) || every.contains(&octet);
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
    for parameters in cuts {
        for &backslashes in backslashes {
            read(raw, (false, parameters, backslashes), &mut found);
        }
    }
    for (backslashes, rest) in behind_host(raw) {
        // To who parses references `;` is a letter.
        read(rest, (true, Parameters::Kept, backslashes), &mut found);
    }
    found
}

/// Adds what readers of one manner make of a path, however they decode it: of all of it, or of what is behind a host.
fn read(
    raw: &[u8],
    (host, parameters, backslashes): (bool, Parameters, Backslashes),
    found: &mut Vec<(Reading, Vec<u8>)>,
) {
    let mut known: Vec<Vec<u8>> = Vec::new();
    for decode in [Decode::Unreserved, Decode::All, Decode::ExceptSlashes, Decode::Twice] {
        if matches!(parameters, Parameters::CutAfter(rounds) if rounds > decode.rounds()) {
            continue;
        }
        let path = segments(raw, decode, parameters, backslashes);
        let reading = Reading { decode, parameters, backslashes, host, merge: false, dots: false };
        if known.contains(&path) {
            continue;
        }
        resolve(reading, &path, found);
        known.push(path);
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

/// A raw path as a reader sees its segments.
fn segments(raw: &[u8], decode: Decode, parameters: Parameters, backslashes: Backslashes) -> Vec<u8> {
    let mut path = raw.to_vec();
    for round in 0..=decode.rounds() {
        if round > 0 {
            path = decode.once(&path);
        }
        if backslashes == Backslashes::Always || (backslashes == Backslashes::Written && round == 0) {
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
    if before_breaks(&normalised.path).is_none_or(|mut some| some.any(&mut strays)) {
        return Verdict::Refuse;
    }
    let mut astray = false;
    for (reading, path) in readings(raw) {
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
    if readings(&target).iter().any(|(_, path)| strays(path)) {
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

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// An octet that no target may hold as it is has one spelling only: no reader tells `%20` from the space that it
/// stands for, so decoding it sets no two readers apart.
fn decode_unreserved(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, |b| is_unreserved(b) || (b != b'%' && !is_plain(b)))
}

/// Decodes every escape; a `%` that begins none stays, as most backends have it.
fn decode_leniently(raw: &[u8]) -> Vec<u8> {
    decode(raw).unwrap_or_else(|_| decode_if(raw, |_| true))
}

fn decode_twice(raw: &[u8]) -> Vec<u8> {
    decode_leniently(&decode_leniently(raw))
}

fn decode_if(raw: &[u8], which: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut path = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&b, after)) = rest.split_first() {
        if let [b'%', high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            && which(high << 4 | low)
        {
            path.push(high << 4 | low);
            rest = after;
        } else {
            path.push(b);
            rest = after;
        }
    }
    path
}

/// RFC 3986 section 5.2.4: a climb above the root stops there.
fn remove_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.strip_prefix(b"/").unwrap_or(path).split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => out.truncate(out.iter().rposition(|&b| b == b'/').unwrap_or(0)),
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        if last {
            out.push(b'/');
        }
    }
    out
}

fn merge(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    out
}

fn to_slashes(path: &mut [u8]) {
    for b in path {
        if *b == b'\\' {
            *b = b'/';
        }
    }
}

fn cut_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (index, segment) in path.split(|&b| b == b'/').enumerate() {
        if index > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(segment.split(|&b| b == b';').next().unwrap_or_default());
    }
    out
}
