//! Case-insensitive literal prefixes of paths: of all that match, the first in the matching order wins.
//!
//! In sorted order, the longest prefix of a path is the last text that is not greater than the path, or a prefix of
//! that text in turn; each text knows the next shorter prefix, and the first position of itself and of all of these.
//! So a lookup is one binary search, however many texts there are, and a few comparisons of lengths, however deeply
//! they are nested.

/// Texts, each with its position in the matching order. Immutable.
#[derive(Debug, Default)]
pub(super) struct Literals {
    /// By text.
    sorted: Box<[Literal]>,
}

#[derive(Debug)]
struct Literal {
    /// In lower case.
    text: Box<[u8]>,
    /// The lowest position of this text and of its prefixes: usually its own, as longer texts precede shorter ones. Not
    /// if a slash was added to it, because it matches only what is below it.
    place: usize,
    /// The index of the longest other text that is a prefix of this one.
    within: Option<usize>,
}

impl Literals {
    /// Built from texts and their positions. Of equal texts the lowest position wins.
    pub(super) fn new(texts: Vec<(Box<str>, usize)>) -> Self {
        let lower = |text: Box<str>| text.to_ascii_lowercase().into_bytes().into_boxed_slice();
        let mut texts: Vec<_> = texts.into_iter().map(|(text, place)| (lower(text), place)).collect();
        texts.sort_unstable();
        texts.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut sorted: Vec<Literal> = Vec::with_capacity(texts.len());
        for (text, place) in texts {
            let mut within = sorted.len().checked_sub(1);
            while let Some(other) = within.filter(|other| !text.starts_with(&sorted[*other].text)) {
                within = sorted[other].within;
            }
            let place = within.map_or(place, |other| place.min(sorted[other].place));
            sorted.push(Literal { text, place, within });
        }
        Self { sorted: sorted.into() }
    }

    /// The lowest position of the texts that are prefixes of a path.
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        let fold = |byte: &u8| byte.to_ascii_lowercase();
        let folded = || path.iter().map(fold);
        let mut at = self.sorted.partition_point(|it| it.text.iter().copied().le(folded())).checked_sub(1)?;
        let common = self.sorted[at].text.iter().copied().zip(folded()).take_while(|(a, b)| a == b).count();
        while self.sorted[at].text.len() > common {
            at = self.sorted[at].within?;
        }
        Some(self.sorted[at].place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_that_a_path_begins_with(
            texts in prop::collection::vec("/[abB]{0,4}", 0..12), path in "/[abAB]{0,5}",
        ) {
            let first = texts.iter().position(|it| path.to_lowercase().starts_with(&it.to_lowercase()));
            let numbered = texts.iter().enumerate().map(|(place, it)| (it.as_str().into(), place)).collect();
            prop_assert_eq!(Literals::new(numbered).find(path.as_bytes()), first);
        }
    }
}
