//! Replaces texts in a body as it passes: nginx' `sub_filter`.
//!
//! **Invariant:** between pieces it holds less of the body than the longest text that it looks for, and its output comes in
//! parts: a text of one byte may be replaced by thousands, as often as it occurs.

/// A text in lower case that is looked for, in any case, and what takes its place.
pub(crate) struct Pair {
    pub(crate) text: Box<[u8]>,
    pub(crate) by: Vec<u8>,
}

/// The state of one body.
pub(crate) struct Replacer {
    pairs: Vec<Pair>,
    once: bool,
    /// The length of the longest text.
    longest: usize,
    /// Which bytes a text begins with.
    begins: [bool; 256],
    /// Of the body, what was not passed on yet, from `at` on.
    held: Vec<u8>,
    at: usize,
    /// Whether the body ends there.
    ended: bool,
}

impl Replacer {
    /// `once`: each text is replaced once.
    pub(crate) fn new(pairs: Vec<Pair>, once: bool) -> Self {
        let mut it =
            Self { pairs, once, longest: 0, begins: [false; 256], held: Vec::new(), at: 0, ended: false };
        it.look();
        it
    }

    fn look(&mut self) {
        self.longest = self.pairs.iter().map(|it| it.text.len()).max().unwrap_or(0);
        self.begins = [false; 256];
        for first in self.pairs.iter().filter_map(|it| it.text.first()) {
            self.begins[usize::from(*first)] = true;
        }
    }

    /// Takes a piece of the body, once there is no more output.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.held.drain(..std::mem::take(&mut self.at));
        self.held.extend_from_slice(piece);
    }

    /// The body has ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether there is more output now.
    pub(super) fn has_more(&self) -> bool {
        self.at < self.known()
    }

    /// Whether all was passed on.
    pub(super) fn is_over(&self) -> bool {
        self.ended && !self.has_more()
    }

    /// Where it is known whether a text begins: before this place.
    fn known(&self) -> usize {
        let unknown = if self.ended { 0 } else { self.longest.max(1) - 1 };
        self.held.len().saturating_sub(unknown)
    }

    /// The next output, which is larger than `room` by one replacement at the most.
    pub(super) fn next(&mut self, room: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(room.min(self.held.len() - self.at));
        while self.has_more() && out.len() < room {
            let rest = &self.held[self.at..];
            match self.text_at(rest) {
                Some(found) => {
                    let Pair { text, by } = &self.pairs[found];
                    out.extend_from_slice(by);
                    self.at += text.len();
                    if self.once {
                        self.pairs.remove(found);
                        self.look();
                    }
                }
                None => {
                    out.push(rest[0]);
                    self.at += 1;
                }
            }
        }
        out
    }

    /// The first text that stands at the beginning of `rest`.
    fn text_at(&self, rest: &[u8]) -> Option<usize> {
        if !self.begins[usize::from(rest[0].to_ascii_lowercase())] {
            return None;
        }
        let is_here =
            |it: &Pair| rest.get(..it.text.len()).is_some_and(|it_is| it_is.eq_ignore_ascii_case(&it.text));
        self.pairs.iter().position(is_here)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replacer(pairs: &[(&str, &str)], once: bool) -> Replacer {
        let pair =
            |(text, by): &(&str, &str)| Pair { text: text.as_bytes().into(), by: by.as_bytes().into() };
        Replacer::new(pairs.iter().map(pair).collect(), once)
    }

    fn replaced(pairs: &[(&str, &str)], once: bool, pieces: &[&str]) -> String {
        let (mut it, mut out) = (replacer(pairs, once), Vec::new());
        for piece in pieces {
            it.push(piece.as_bytes());
            out.extend(rest(&mut it));
        }
        it.end();
        out.extend(rest(&mut it));
        assert!(it.is_over());
        String::from_utf8(out).unwrap()
    }

    fn rest(it: &mut Replacer) -> Vec<u8> {
        let mut out = Vec::new();
        while it.has_more() {
            out.extend(it.next(3));
        }
        out
    }

    #[test]
    fn output_comes_in_parts() {
        let by = "x".repeat(1_000);
        let mut it = replacer(&[("a", &by), (&"a".repeat(50), "")], false);
        it.push(&[b'a'; 49]);
        assert!(!it.has_more());
        it.end();
        let mut parts = 0;
        while it.has_more() {
            assert_eq!(it.next(1_500).len(), (49_000 - parts * 2_000).min(2_000));
            parts += 1;
        }
        assert!(parts == 25 && it.is_over());
    }

    #[test]
    fn texts_are_replaced_wherever_the_pieces_end() {
        for (pairs, once, pieces, expected) in [
            (
                &[("<head>", "<head><base>")][..],
                true,
                &["<html><HE", "AD></head><head>"][..],
                "<html><head><base></head><head>",
            ),
            (&[("a", "b"), ("b", "c")], false, &["abab"], "bcbc"),
            (&[("a", "1"), ("b", "2")], true, &["aa", "bb"], "1a2b"),
            (&[("ab", "1"), ("abc", "2")], false, &["abc"], "1c"),
            (&[("abc", "2"), ("ab", "1")], false, &["ab", "c ab"], "2 1"),
            (&[("aab", "x")], false, &["aaab"], "ax"),
            (&[("abc", "x")], false, &["a", "b"], "ab"),
            (&[("x", "")], false, &[""], ""),
        ] {
            assert_eq!(replaced(pairs, once, pieces), expected, "{pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn where_pieces_end_does_not_matter(body in "[ab]{0,40}", at in 0_usize..40, once: bool) {
            let pairs = [("ab", "x"), ("aba", "yy"), ("bb", "")];
            let (before, behind) = body.split_at(at.min(body.len()));
            let mut it = replacer(&pairs, once);
            it.push(before.as_bytes());
            drop(rest(&mut it));
            it.push(b"");
            prop_assert!(it.held.len() < 3, "it holds {}", it.held.len());
            prop_assert_eq!(replaced(&pairs, once, &[before, behind]), replaced(&pairs, once, &[&body]));
            if !once {
                prop_assert_eq!(replaced(&[("ab", "x")], false, &[before, behind]), body.replace("ab", "x"));
            }
        }
    }
}
