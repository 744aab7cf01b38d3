//! How other servers read a raw path, and what to send them so that they agree with the chosen route.

use memchr::memchr;

use super::octets::{
    bare, cut_parameters, decode_except_slashes, decode_leniently, decode_necessary, decode_spelled,
    decode_unreserved, ended_by, has_other_spelling, merge, to_slashes, without_dots,
};
use super::{Normalised, re_encode};

/// Maximum number of line breaks in a path: each is an additional way to read it.
const BREAKS: usize = 4;

/// Maximum total octets of all readings of a short path.
const AHEAD: usize = 112 * 1024;

/// Maximum number of proxies in a row that decode a path and send it on as it is.
const DECODERS: usize = 2;

/// Additional octets as a multiple of the path's length. Only a path with backslashes, parameters and escapes all at
/// once exceeds both, if it is longer than 0.7 KiB, or 0.2 with dot segments, and such paths have no legitimate use.
const TIMES: usize = 8;

/// A way in which some backend reads a raw path: the steps that it applies, in this order. Backends differ in each
/// step, and real ones apply them in different orders, so nearly every combination exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    decode: Decode,
    parameters: Parameters,
    backslashes: Backslashes,
    /// The text between two slashes at the beginning and the next slash is a host: for readers that parse a target as
    /// a URI reference (RFC 3986 section 4.2), like Node's `new URL(request.url, base)`.
    host: bool,
    /// Repeated slashes are merged.
    merge: bool,
    /// Dot segments are removed; `..` at the root is ignored.
    dots: bool,
    /// What a first reader made of the path before all of that, if anything.
    before: Option<Before>,
}

/// What a first reader did to a path that it passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Before {
    /// It removed dot segments.
    Cleaned(Cleaner),
    /// It decoded the path and sent it on as it was, so that it ended at what had been an escaped `?`, `#` or blank: nginx'
    /// `proxy_pass http://backend$uri`, Go's `url.Parse(base + request.URL.Path)`.
    Ended,
}

/// A first reader that removes dot segments and leaves everything else to the next one: a proxy in front of the
/// application, the URL parser of an application that then decodes the path, or what cleans the path that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cleaner {
    /// `%2e` is a dot, too (RFC 3986 section 6.2.2): URL parsers and most proxies. For others, like Go's `path.Clean`,
    /// it is text.
    decodes: bool,
    /// Repeated slashes are merged first: `path.Clean`, Node's `path.normalize`, `posixpath.normpath`, Apache, HAProxy.
    merges: bool,
    /// A backslash is a slash: parsers of the WHATWG's URLs, like Node's and Envoy's.
    backslashes: bool,
}

/// All kinds of first readers.
const CLEANERS: [Cleaner; 8] = {
    let (mut all, mut kind) = ([Cleaner { decodes: false, merges: false, backslashes: false }; 8], 0);
    while kind < all.len() {
        all[kind] = Cleaner { decodes: kind & 1 != 0, merges: kind & 2 != 0, backslashes: kind & 4 != 0 };
        kind += 1;
    }
    all
};

/// Which escapes are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Decode {
    /// Only what has no other spelling (`%20`, `%C3`): who matches the path as it is written.
    Necessary,
    /// Letters, digits and `-._~`, and what has no other spelling (`%20`, `%C3`).
    Unreserved,
    /// All except slashes and backslashes.
    ExceptSlashes,
    /// All.
    All,
    /// All, twice.
    Twice,
}

/// How a `;` and what follows it in its segment are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Parameters {
    /// As part of the segment.
    Kept,
    /// Cut up to the next slash after this many rounds of decoding. After none: Tomcat, where an escaped slash is cut
    /// with the rest; after the first of two: a filter in front of a framework.
    CutAfter(usize),
    /// The path ends at the first after this many rounds of decoding, as at a `?`: Fastify up to 4, Restify.
    EndsAfter(usize),
}

/// Whether a backslash is treated as a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Backslashes {
    /// Never.
    Kept,
    /// If it is written literally, but not if it is escaped: URL parsers.
    Written,
    /// Before parameters are cut, and again in what is decoded later.
    Always,
    /// After parameters were cut: Tomcat.
    Last,
}

/// All kinds of decoding.
const DECODES: [Decode; 5] =
    [Decode::Necessary, Decode::Unreserved, Decode::All, Decode::ExceptSlashes, Decode::Twice];

impl Decode {
    /// Number of decoding rounds.
    fn rounds(self) -> usize {
        1 + usize::from(self == Self::Twice)
    }

    /// The first round. It is the same for decoding all escapes once or twice.
    fn once(self, path: &[u8]) -> Vec<u8> {
        match self {
            Self::Necessary => decode_necessary(path),
            Self::Unreserved => decode_unreserved(path),
            Self::ExceptSlashes => decode_except_slashes(path),
            Self::All | Self::Twice => decode_leniently(path),
        }
    }

    /// The index of its first round among these.
    fn place(self) -> usize {
        match self {
            Self::Necessary => 0,
            Self::Unreserved => 1,
            Self::ExceptSlashes => 2,
            Self::All | Self::Twice => 3,
        }
    }
}

impl Parameters {
    /// After how many rounds of decoding they are looked for.
    fn rounds(self) -> usize {
        match self {
            Self::Kept => 0,
            Self::CutAfter(rounds) | Self::EndsAfter(rounds) => rounds,
        }
    }

    /// What is left of a path after this many rounds.
    fn cut(self, mut path: Vec<u8>, rounds: usize) -> Vec<u8> {
        match self {
            Self::CutAfter(at) if at == rounds => cut_parameters(&path),
            Self::EndsAfter(at) if at == rounds => {
                path.truncate(ended_by(&path, b";").map_or(path.len(), <[u8]>::len));
                path
            }
            _ => path,
        }
    }
}

impl Reading {
    /// Whether it agrees with nginx when it gets the normal form. nginx does not interpret backslashes, parameters or
    /// double escapes, so its normal form still contains them.
    fn is_curable(self) -> bool {
        self.decode != Decode::Twice
            && !matches!(self.before, Some(Before::Cleaned(Cleaner { backslashes: true, .. })))
            && self.only_decodes()
    }

    /// Whether nothing but escapes is interpreted.
    fn only_decodes(self) -> bool {
        self.parameters == Parameters::Kept && self.backslashes == Backslashes::Kept
    }

    /// Whether the path had ended before it was read.
    fn is_of_end(self) -> bool {
        self.before == Some(Before::Ended)
    }
}

/// The distinct paths that all kinds of readers see in a raw path, separately for readings that a normal form cures
/// and for the others. Readings that cannot differ for this path are skipped: a path without a backslash is read alike
/// by those who differ only in backslashes. `None`: there are more than any legitimate path has.
///
/// **Invariant:** bounded work: at most [`AHEAD`] octets plus [`TIMES`] the path's length are read in total, and as much again
/// for where a path may end early.
pub(crate) fn readings(raw: &[u8]) -> Option<Vec<(Reading, Vec<u8>)>> {
    let work = AHEAD + TIMES * raw.len();
    let mut found = Found { left: work, ..Found::default() };
    found.add_hop(raw, None)?;
    let rests = behind_host(raw).map(|(_, rest)| rest);
    let mut passed_on = Vec::new();
    for path in std::iter::once(raw).chain(rests) {
        for cleaner in CLEANERS {
            for cleaned in cleaned(path, cleaner) {
                // Most paths are cleaned alike by all.
                let next = (cleaner.backslashes, cleaned);
                if !passed_on.contains(&next) {
                    found.add_hop(&next.1, Some(Before::Cleaned(cleaner)))?;
                    passed_on.push(next);
                }
            }
        }
    }
    // After all others: what they see, too, is not judged as an end.
    found.left = work;
    let mut ends = Vec::new();
    for path in std::iter::once(raw).chain(passed_on.iter().map(|(_, path)| &path[..])) {
        add_ends(path, DECODERS, &mut ends, &mut found.left)?;
    }
    for end in ends {
        found.add_hop(&end, Some(Before::Ended))?;
    }
    Some(found.paths)
}

/// Adds what is left of a path behind proxies that decode it and send it on as it is, if it then ends earlier: with
/// dot segments, or without them, as most have. `None`: the work exceeds the bound.
fn add_ends(path: &[u8], decoders: usize, ends: &mut Vec<Vec<u8>>, left: &mut usize) -> Option<()> {
    let has_end = |path: &[u8]| memchr::memchr2(b'?', b'#', path).is_some() || trimmed(path).is_some();
    let once = decode_leniently(path);
    // Nothing else is decoded for most paths.
    if !has_end(&once) && (decoders == 1 || !has_end(&decode_leniently(&once))) {
        return Some(());
    }
    let mut sent = Vec::new();
    for decoded in [once, decode_except_slashes(path)] {
        *left = left.checked_sub(path.len())?;
        sent.extend(merged(&decoded).iter().flat_map(|merged| without_dots(merged)));
        sent.extend(without_dots(&decoded));
        sent.push(decoded);
    }
    sent.sort_unstable();
    sent.dedup();
    for sent in sent {
        // For some a `#` is a part of the path.
        let cut = [ended_by(&sent, b"?#"), ended_by(&sent, b"?"), trimmed(&sent)];
        for end in cut.into_iter().flatten() {
            if !ends.iter().any(|it| it == end) {
                ends.push(end.to_vec());
            }
        }
        if decoders > 1 {
            let next = cut[0].unwrap_or(&sent);
            add_ends(next, decoders - 1, ends, left)?;
        }
    }
    Some(())
}

/// A path in a request line without the blanks at its end, which the next one takes for what precedes the version; `None`:
/// there are none.
fn trimmed(path: &[u8]) -> Option<&[u8]> {
    let trimmed = path.trim_ascii_end();
    (trimmed.len() < path.len()).then_some(trimmed)
}

/// What first readers of a kind pass on; nothing if that is what they got, or what those of another kind pass on.
fn cleaned(raw: &[u8], cleaner: Cleaner) -> Vec<Vec<u8>> {
    let is_alike =
        (cleaner.backslashes && !raw.contains(&b'\\')) || (cleaner.decodes && !has_other_spelling(raw));
    if is_alike {
        return Vec::new();
    }
    let mut path = if cleaner.decodes { decode_spelled(raw) } else { raw.to_vec() };
    if cleaner.backslashes {
        to_slashes(&mut path);
    }
    let merged = if cleaner.merges { merged(&path) } else { Some(path.clone()) };
    let cleaned = merged.iter().flat_map(|path| without_dots(path));
    cleaned.filter(|cleaned| cleaner.backslashes || *cleaned != path).collect()
}

/// A path with merged slashes; `None` if none are repeated.
fn merged(path: &[u8]) -> Option<Vec<u8>> {
    path.windows(2).any(|two| two == b"//").then(|| merge(path))
}

/// The readings found so far.
#[derive(Default)]
struct Found {
    paths: Vec<(Reading, Vec<u8>)>,
    /// Paths as the readers see their segments, whether the normal form cures them, and whether another read them before.
    known: Vec<(bool, bool, Vec<u8>)>,
    /// Octets that may still be read.
    left: usize,
}

impl Found {
    /// Adds what all kinds of readers make of a path. `None`: the work exceeds the bound.
    fn add_hop(&mut self, raw: &[u8], before: Option<Before>) -> Option<()> {
        let once = decode_leniently(raw);
        let every = decode_leniently(&once);
        let has = |octet| [raw, &once, &every].iter().any(|path| memchr(octet, path).is_some());
        let (semicolon, backslash) = (has(b';'), has(b'\\'));
        // Without parameters it does not matter when the backslashes of all are converted.
        let backslashes = [
            (Backslashes::Kept, true),
            (Backslashes::Written, raw.contains(&b'\\')),
            (Backslashes::Always, backslash && semicolon),
            (Backslashes::Last, backslash),
        ];
        let mut cuts = vec![Parameters::Kept];
        if semicolon {
            cuts.extend((0..=Decode::Twice.rounds()).map(Parameters::CutAfter));
            cuts.extend([0, 1].map(Parameters::EndsAfter));
        }
        let mut begun = Begun::new(raw);
        for &parameters in &cuts {
            for (backslashes, _) in backslashes.into_iter().filter(|(_, differs)| *differs) {
                self.add(&mut begun, (before, false, parameters, backslashes))?;
            }
        }
        for (backslashes, rest) in behind_host(raw) {
            // For parsers of URI references `;` is an ordinary character, but not for what comes behind them.
            let mut begun = Begun::new(rest);
            for &parameters in &cuts {
                self.add(&mut begun, (before, true, parameters, backslashes))?;
            }
        }
        Some(())
    }

    /// Adds what a group of readers makes of a path, for each kind of decoding: of the whole path, or of what follows
    /// a host. `None`: the work exceeds the bound.
    fn add(
        &mut self,
        begun: &mut Begun<'_>,
        (before, host, parameters, backslashes): (Option<Before>, bool, Parameters, Backslashes),
    ) -> Option<()> {
        let mut mine: Vec<usize> = Vec::new();
        for decode in DECODES {
            if parameters.rounds() > decode.rounds() {
                continue;
            }
            if decode == Decode::Necessary && !begun.has_other_spelling {
                continue;
            }
            self.left = self.left.checked_sub(begun.raw.len())?;
            let reading =
                Reading { decode, parameters, backslashes, host, merge: false, dots: false, before };
            for path in with_and_without_slash(begun.raw, segments(begun, decode, parameters, backslashes)) {
                if mine.iter().any(|place| self.known[*place].2 == path) {
                    continue;
                }
                let known = (reading.is_curable(), before.is_some(), path);
                let place = self.known.iter().position(|it| *it == known);
                mine.push(place.unwrap_or(self.known.len()));
                if place.is_none() {
                    resolve(reading, &known.2, &mut self.paths);
                    self.known.push(known);
                }
            }
        }
        Some(())
    }
}

/// What a reader made of a raw path. A slash at its end that was not one there is none for who splits the path before
/// it decodes its segments, as file servers do.
fn with_and_without_slash(raw: &[u8], path: Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    let bare = bare(raw, &path);
    std::iter::once(path).chain(bare)
}

/// The path for readers that take what follows two slashes for a host: it ends at a slash, or, where a backslash is
/// one (URL parsers of browsers and of Node), also at a backslash.
fn behind_host(raw: &[u8]) -> impl Iterator<Item = (Backslashes, &[u8])> {
    let behind = |is_slash: fn(&u8) -> bool| {
        let host = raw.iter().position(|byte| !is_slash(byte)).unwrap_or(raw.len());
        let end = raw[host..].iter().position(is_slash);
        // Without a path it is the root.
        (host > 1).then(|| end.map_or(&b"/"[..], |end| &raw[host + end..]))
    };
    let kept = behind(|byte| *byte == b'/').map(|rest| (Backslashes::Kept, rest));
    let written = behind(|byte| matches!(byte, b'/' | b'\\')).map(|rest| (Backslashes::Written, rest));
    kept.into_iter().chain(written.filter(|_| raw.contains(&b'\\')))
}

/// A raw path, with the results of the first round of decoding, which many readers share.
struct Begun<'a> {
    raw: &'a [u8],
    /// Whether it matters who decodes what need not be escaped.
    has_other_spelling: bool,
    /// By kind of decoding, whether backslashes were converted before, and what was cut before.
    once: [Option<Vec<u8>>; 24],
}

impl<'a> Begun<'a> {
    fn new(raw: &'a [u8]) -> Self {
        Self { raw, has_other_spelling: has_other_spelling(raw), once: Default::default() }
    }

    fn once(&mut self, decode: Decode, has_slashes: bool, parameters: Parameters) -> &[u8] {
        let (is_cut, is_ended) =
            (parameters == Parameters::CutAfter(0), parameters == Parameters::EndsAfter(0));
        let place = decode.place() * 6
            + usize::from(has_slashes) * 3
            + usize::from(is_cut)
            + 2 * usize::from(is_ended);
        self.once[place].get_or_insert_with(|| {
            let mut path = self.raw.to_vec();
            if has_slashes {
                to_slashes(&mut path);
            }
            decode.once(&parameters.cut(path, 0))
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
    let mut path = begun.once(decode, has_slashes, parameters).to_vec();
    for round in 1..=decode.rounds() {
        if round > 1 {
            path = decode.once(&path);
        }
        if backslashes == Backslashes::Always {
            to_slashes(&mut path);
        }
        path = parameters.cut(path, round);
    }
    if backslashes == Backslashes::Last {
        to_slashes(&mut path);
    }
    path
}

/// Adds the paths that its segments stand for, with and without merged slashes.
fn resolve(reading: Reading, path: &[u8], found: &mut Vec<(Reading, Vec<u8>)>) {
    let merged = merge(path);
    let mergeable = merged.len() != path.len();
    for (merges, path) in [(false, path), (true, &merged)].into_iter().take(1 + usize::from(mergeable)) {
        let reading = Reading { merge: merges, ..reading };
        for resolved in without_dots(path) {
            // Jetty resolves first, and a framework above it merges what is left.
            let late = if mergeable && !merges { merge(&resolved) } else { Vec::new() };
            if !late.is_empty() && late != resolved {
                found.push((Reading { merge: true, dots: true, ..reading }, late));
            }
            found.push((Reading { dots: true, ..reading }, resolved));
        }
        // WSGI and similar match the decoded path as it is, also behind a proxy that decodes it first, and so does who
        // decodes the path of a URL; Spring's patterns match it without parameters.
        found.push((reading, path.to_vec()));
    }
}

/// The target to send to a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The original target, as nginx does.
    Raw,
    /// This path instead of the client's, with the client's query: some reader would have taken the raw path for
    /// another route's.
    Normal(Vec<u8>),
    /// None: some reader would take any spelling for another route's. The response is 400.
    Refuse,
}

/// Applies the dual-reading rule to a path that was normalised from `raw`.
///
/// `route` returns the route and policy of a path; it is called only for readings that differ from the normal form,
/// and not at all for a path that is not suspicious. `differs` returns whether the chosen route (the first) may not be
/// read as the other one; it is told of readings that take what is usual in names for the end of the path (an escaped `?`
/// or `#`): few who come later do.
pub(crate) fn forward<R>(
    raw: &[u8],
    normalised: &Normalised<'_>,
    mut route: impl FnMut(&[u8]) -> R,
    differs: impl Fn(&R, &R, bool) -> bool,
) -> Verdict {
    if !normalised.suspicious {
        return Verdict::Raw;
    }
    let mut chosen: Option<R> = None;
    let mut strays = |is_of_end: bool, path: &[u8]| {
        path != &*normalised.path && {
            let chosen = chosen.get_or_insert_with(|| route(&normalised.path));
            differs(chosen, &route(path), is_of_end)
        }
    };
    let leads_elsewhere = |before: &[u8]| {
        // A segment that is not a dot segment may become one without what follows the line break.
        strays(false, before)
            || readings(&re_encode(before))
                .is_none_or(|read| read.iter().any(|(reading, path)| strays(reading.is_of_end(), path)))
    };
    if before_breaks(&normalised.path).is_none_or(|mut some| some.any(leads_elsewhere)) {
        return Verdict::Refuse;
    }
    let mut astray = false;
    let Some(read) = readings(raw) else {
        return Verdict::Refuse;
    };
    for (reading, path) in read {
        if strays(reading.is_of_end(), &path) {
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
    // A reading that is harmless for the raw path need not be for the normal one: `/a\b/../c` and `/a\../b` change
    // places.
    if readings(&target)
        .is_none_or(|read| read.iter().any(|(reading, path)| strays(reading.is_of_end(), path)))
    {
        return Verdict::Refuse;
    }
    Verdict::Normal(target)
}

/// What is matched by patterns that stop at a line break: `.` does not match one, so `/(.*)` captures only what
/// precedes it, and the rest of the path is lost in a rewrite here or at a backend. `None`: there are too many.
fn before_breaks(path: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let is_few = memchr::memchr_iter(b'\n', path).nth(BREAKS).is_none();
    is_few.then(|| memchr::memchr_iter(b'\n', path).map(|end| &path[..end]))
}

#[cfg(test)]
mod tests;
