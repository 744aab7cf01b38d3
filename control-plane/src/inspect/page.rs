//! Pagination: no response grows with the cluster (gRPC clients accept 4 MiB by default).

use std::convert::Infallible;

use prost::Message;
use tonic::Status;

/// Default number of items of a page.
const USUAL: usize = 1_000;
/// Maximum number of items of a page.
const MOST: usize = 10_000;
/// Size from which on a page takes no further item, in bytes.
const BYTES: usize = 1 << 20;
/// Limit of a token's length: longer than any position in a list.
const TOKEN: usize = 2_048;

/// The requested part of a list.
#[derive(Debug)]
pub(super) struct Page {
    size: usize,
    after: String,
}

impl Page {
    /// Parses `page_size` and `page_token` of a request.
    pub(super) fn new(size: u32, token: String) -> Result<Self, Status> {
        if token.len() > TOKEN {
            return Err(bad_token());
        }
        let size = if size == 0 { USUAL } else { usize::try_from(size).map_or(MOST, |size| size.min(MOST)) };
        Ok(Self { size, after: token })
    }

    /// The position after which the page begins, parsed from the token by `read`; `None`: the beginning.
    pub(super) fn after<'a, P>(&'a self, read: impl Fn(&'a str) -> Option<P>) -> Result<Option<P>, Status> {
        match self.after.as_str() {
            "" => Ok(None),
            token => read(token).map(Some).ok_or_else(bad_token),
        }
    }

    /// The items that fit on this page, in order, and one more: avoids sorting a long list for each of its pages.
    pub(super) fn first<T>(&self, mut items: Vec<T>, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<T> {
        if items.len() > self.size + 1 {
            items.select_nth_unstable_by(self.size, &order);
            items.truncate(self.size + 1);
        }
        items.sort_unstable_by(order);
        items
    }

    /// Takes items in order, each with its position, until the page is full; returns the position of the last. Items
    /// with the same position stay on one page.
    pub(super) fn fill<P: PartialEq, T: Message>(
        &self,
        items: impl IntoIterator<Item = (P, T)>,
    ) -> (Vec<T>, Option<P>) {
        let filled = self.try_fill(items.into_iter().map(Ok::<_, Infallible>));
        filled.unwrap_or_else(|never| match never {})
    }

    /// The same for fallible items: returns the first error.
    pub(super) fn try_fill<P: PartialEq, T: Message, E>(
        &self,
        items: impl IntoIterator<Item = Result<(P, T), E>>,
    ) -> Result<(Vec<T>, Option<P>), E> {
        let (mut kept, mut bytes, mut last) = (Vec::new(), 0, None);
        for item in items {
            let (place, item) = item?;
            let is_full = kept.len() >= self.size || bytes >= BYTES;
            if is_full && last.as_ref() != Some(&place) {
                return Ok((kept, last));
            }
            bytes += item.encoded_len();
            kept.push(item);
            last = Some(place);
        }
        Ok((kept, None))
    }
}

fn bad_token() -> Status {
    Status::invalid_argument("page_token: expected next_page_token of an answer to the same question")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_by_number_and_by_bytes_and_not_within_a_place() {
        let page = |size| Page::new(size, String::new()).unwrap();
        let items = || [("a", 1_u32), ("b", 2), ("b", 3), ("c", 4)];
        assert_eq!(page(1).fill(items()), (vec![1], Some("a")));
        assert_eq!(page(2).fill(items()), (vec![1, 2, 3], Some("b")));
        assert_eq!(page(4).fill(items()), (vec![1, 2, 3, 4], None));
        let large = || (0..5).map(|place| (place, vec![0_u8; BYTES / 2]));
        assert_eq!(page(5).fill(large()).1, Some(1));
    }

    #[test]
    fn no_request_makes_a_page_larger_than_the_largest() {
        assert_eq!(Page::new(0, String::new()).unwrap().size, USUAL);
        assert_eq!(Page::new(u32::MAX, String::new()).unwrap().size, MOST);
        assert!(Page::new(0, "x".repeat(TOKEN)).is_ok());
        assert!(Page::new(0, "x".repeat(TOKEN + 1)).is_err());
    }

    #[test]
    fn what_comes_first_is_found_without_sorting_the_rest() {
        let items: Vec<u32> = (0..1_000).rev().collect();
        let page = Page::new(3, String::new()).unwrap();
        assert_eq!(page.first(items, Ord::cmp), [0, 1, 2, 3]);
        assert_eq!(page.first(vec![2, 1], Ord::cmp), [1, 2]);
    }
}
