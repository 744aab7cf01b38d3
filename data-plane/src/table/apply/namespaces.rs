//! The counts of connections that the backends of a namespace have together: each stays the same as long as a backend or
//! a connection of the namespace exists, so that none is left out because its backend was removed and added again.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use shared::budget::Budget;

use super::sweep::Sweep;

/// The counts, by namespace.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    links: HashMap<Box<str>, Budget, RandomState>,
    sweep: Sweep,
}

impl Namespaces {
    /// The count of a namespace.
    pub(super) fn links(&mut self, namespace: &str) -> Budget {
        if let Some(links) = self.links.get(namespace) {
            return links.clone();
        }
        self.sweep.when_due(self.links.len(), || {
            self.links.retain(|_, links| links.is_shared());
            self.links.len()
        });
        let links = Budget::new(usize::MAX);
        self.links.insert(namespace.into(), links.clone());
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_count_as_long_as_a_backend_or_a_connection_exists() {
        let mut namespaces = Namespaces::default();
        let of_backend = namespaces.links("a");
        let of_connection = namespaces.links("b").take(1);
        (0..1_000).for_each(|number| drop(namespaces.links(&number.to_string())));
        assert!(namespaces.links.len() <= 64, "{}", namespaces.links.len());
        assert!(of_backend.is(&namespaces.links("a")));
        assert_eq!(namespaces.links("b").used(), 1);
        drop(of_connection);
        assert_eq!(namespaces.links("b").used(), 0);
    }
}
