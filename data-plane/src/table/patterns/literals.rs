//! Texts that a path may begin with, in any case: the longest counts.
//!
//! Sorted, the longest one that a path begins with is the last that is not greater than it, or one that this begins with
//! in turn; each knows the next shorter of these. So a lookup is one binary search, however many texts there are, and a few
//! comparisons of lengths, however deep they lie in each other.

/// Texts with the place of each in the order in which paths are asked. Immutable.
#[derive(Debug, Default)]
pub(super) struct Literals {
    /// By text.
    sorted: Box<[Literal]>,
}

#[derive(Debug)]
struct Literal {
    /// In lower case.
    text: Box<[u8]>,
    place: usize,
    /// Where in the list the longest other one lies that it begins with.
    within: Option<usize>,
}

impl Literals {
    /// Of texts and their places. Of equal ones that with the least place counts.
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
            sorted.push(Literal { text, place, within });
        }
        Self { sorted: sorted.into() }
    }

    /// The place of the longest that a path begins with.
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
        fn the_longest_that_a_path_begins_with(
            texts in prop::collection::vec("/[abB]{0,4}", 0..12), path in "/[abAB]{0,5}",
        ) {
            let longest = texts
                .iter()
                .enumerate()
                .filter(|(_, it)| path.to_lowercase().starts_with(&it.to_lowercase()))
                .max_by_key(|(place, it)| (it.len(), std::cmp::Reverse(*place)))
                .map(|(place, _)| place);
            let numbered = texts.iter().enumerate().map(|(place, it)| (it.as_str().into(), place)).collect();
            prop_assert_eq!(Literals::new(numbered).find(path.as_bytes()), longest);
        }
    }
}
