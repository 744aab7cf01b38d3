//! Checks that wait, in one queue per list of users. Namespaces take turns, and the lists of a namespace take turns
//! within it: whoever floods lists, however many he has, delays his namespace, and leaves places to the others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::shares::{Shares, namespace};
use super::{QUEUE, QUEUES};

/// The queues, of values that wait.
pub(super) struct Queues<T> {
    /// By list.
    waiting: HashMap<Arc<str>, VecDeque<T>>,
    /// By namespace: its lists that have a queue, the next one first.
    lists: HashMap<Box<str>, VecDeque<Arc<str>>>,
    /// The namespaces of these lists, the next one first.
    turns: VecDeque<Box<str>>,
    places: Shares,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            lists: HashMap::new(),
            turns: VecDeque::new(),
            places: Shares::new(QUEUES),
        }
    }
}

impl<T> Queues<T> {
    /// Appends to the queue of a list (`namespace/..`); `false`: it has no room.
    pub(super) fn push(&mut self, list: &Arc<str>, value: T) -> bool {
        let is_full = self.waiting.get(list).is_some_and(|queue| queue.len() >= QUEUE);
        if is_full || !self.places.take(list) {
            return false;
        }
        let queue = self.waiting.entry(Arc::clone(list)).or_default();
        queue.push_back(value);
        if queue.len() == 1 {
            self.line_up(Arc::clone(list));
        }
        true
    }

    /// Takes the next one of the list whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let turn = self.turns.pop_front()?;
        let lists = self.lists.get_mut(&turn)?;
        let list = lists.pop_front()?;
        if lists.is_empty() {
            self.lists.remove(&turn);
        } else {
            self.turns.push_back(turn);
        }
        let queue = self.waiting.get_mut(&list)?;
        let value = queue.pop_front();
        self.places.give(&list);
        if queue.is_empty() {
            self.waiting.remove(&list);
        } else {
            self.line_up(list);
        }
        value
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn line_up(&mut self, list: Arc<str>) {
        let name = namespace(&list);
        match self.lists.get_mut(name) {
            Some(lists) => lists.push_back(list),
            None => {
                self.turns.push_back(name.into());
                self.lists.insert(name.into(), VecDeque::from([list]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that wait, in the order in which they are taken.
    fn drain(queues: &mut Queues<String>) -> Vec<String> {
        std::iter::from_fn(|| queues.pop()).collect()
    }

    fn push(queues: &mut Queues<String>, list: &str, value: &str) -> bool {
        queues.push(&list.into(), value.into())
    }

    #[test]
    fn namespaces_take_turns_and_so_do_their_lists() {
        let mut queues = Queues::default();
        for (list, value) in
            [("a/x", "ax1"), ("a/x", "ax2"), ("a/y", "ay1"), ("a/z", "az1"), ("b/x", "b1"), ("b/x", "b2")]
        {
            assert!(push(&mut queues, list, value));
        }
        assert_eq!(drain(&mut queues), ["ax1", "b1", "ay1", "b2", "az1", "ax2"]);
        assert!(queues.is_empty() && queues.lists.is_empty() && queues.turns.is_empty());
        assert!(push(&mut queues, "b/x", "again"));
        assert_eq!(drain(&mut queues), ["again"]);
    }

    #[test]
    fn a_namespace_leaves_places_to_others() {
        let mut queues = Queues::default();
        let flood = (0..QUEUES).flat_map(|list| (0..QUEUE).map(move |_| format!("a/{list}")));
        let placed = flood.filter(|list| push(&mut queues, list, "guess")).count();
        assert!((QUEUES / 2..QUEUES * 9 / 10).contains(&placed), "{placed}");
        assert!(push(&mut queues, "b/x", "theirs"));
        queues.pop();
        assert_eq!(queues.pop().as_deref(), Some("theirs"));
        assert_eq!(drain(&mut queues).len(), placed - 1);
        assert_eq!(queues.places, Shares::new(QUEUES));
    }
}
