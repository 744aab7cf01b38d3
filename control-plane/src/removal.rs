//! Decides when to trust that an object is gone although no deletion was seen; used by both sources.
//!
//! A DELETE of a watch, or the deletion of a file, takes effect at once. An object that is merely absent from a list
//! may be gone, or the list may be wrong: a restored etcd, an API server that answers before it has read its store, a
//! volume that is not mounted. If many objects of a kind go at once, they are removed only when a second consistent
//! list, [`SECOND_LOOK`] later, agrees.
//!
//! **Invariant:** pure; waiting keeps the old state, it never invents one.

use std::time::Duration;

/// Delay of the second list.
pub const SECOND_LOOK: Duration = Duration::from_secs(5);

/// Up to this many objects of a kind are removed without a second list, unless they are all there are.
const FEW: usize = 10;

/// Whether the absence of `absent` of the `known` objects of a kind needs a second list: all of them, or more than 20 %
/// and more than ten.
pub fn is_doubtful(absent: usize, known: usize) -> bool {
    absent > 0 && (absent >= known || (absent > FEW && absent * 5 > known))
}

/// Divides what is absent from a list into what is gone and what needs a second list.
///
/// `doubted` says whether a list read at least [`SECOND_LOOK`] ago lacked the object too: those are gone. The others
/// are judged together by [`is_doubtful`].
pub fn judge<K>(absent: Vec<K>, known: usize, doubted: impl Fn(&K) -> bool) -> Verdict<K> {
    let (gone, fresh): (Vec<K>, Vec<K>) = absent.into_iter().partition(|key| doubted(key));
    if is_doubtful(fresh.len(), known.saturating_sub(gone.len())) {
        Verdict { gone, doubtful: fresh }
    } else {
        let mut gone = gone;
        gone.extend(fresh);
        Verdict { gone, doubtful: Vec::new() }
    }
}

/// What [`judge`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict<K> {
    /// These are gone.
    pub gone: Vec<K>,
    /// These stay until a second list agrees.
    pub doubtful: Vec<K>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_removals_apply_at_once_and_many_wait() {
        assert!(!is_doubtful(0, 0));
        assert!(!is_doubtful(0, 7));
        assert!(is_doubtful(1, 1), "all of a kind");
        assert!(!is_doubtful(1, 2));
        assert!(!is_doubtful(10, 11), "ten are few");
        assert!(is_doubtful(11, 12));
        assert!(!is_doubtful(20, 100), "20 % is not more than 20 %");
        assert!(is_doubtful(21, 100));
        assert!(!is_doubtful(200, 1000));
    }

    #[test]
    fn what_two_lists_lack_is_gone() {
        let first = judge((0..30).collect(), 40, |_| false);
        assert_eq!(first, Verdict { gone: vec![], doubtful: (0..30).collect() });
        // 29 came back; one more went, which is few.
        let second = judge(vec![3, 35], 40, |key| first.doubtful.contains(key));
        assert_eq!(second, Verdict { gone: vec![3, 35], doubtful: vec![] });
    }

    proptest! {
        #[test]
        fn nothing_is_lost_between_the_two_parts(absent in 0usize..200, more in 0usize..200, doubted in 0usize..200) {
            let all: Vec<usize> = (0..absent).collect();
            let verdict = judge(all.clone(), absent + more, |key| *key < doubted);
            let mut both = [verdict.gone.clone(), verdict.doubtful.clone()].concat();
            both.sort_unstable();
            prop_assert_eq!(both, all);
            prop_assert!(verdict.doubtful.iter().all(|key| *key >= doubted), "the second look decides");
        }
    }

    /// What two lists lack is no longer there, so it does not make the rest look many.
    #[test]
    fn what_is_missing_since_is_compared_with_what_is_left() {
        let verdict = judge((0..71).collect(), 100, |key| *key < 60);
        assert_eq!(verdict, Verdict { gone: (0..60).collect(), doubtful: (60..71).collect() });
    }
}
