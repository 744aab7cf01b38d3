//! What Secrets give for other uses than as certificates, by key: users, in the cells that paths name.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use shared::resource::Material;

use super::Leave;
use crate::table::users::{Users, UsersCell};

/// All Materials and their cells.
///
/// A version that cannot be read ends the one before it: whoever was taken off a list stays off it.
#[derive(Debug, Default)]
pub(super) struct Materials {
    known: HashMap<Arc<str>, Arc<Users>>,
    cells: HashMap<Arc<str>, Weak<UsersCell>>,
    /// Left what the proxy has while a path named them.
    lingering: BTreeSet<Arc<str>>,
    /// Those of them that a full sync lacked.
    absent: BTreeSet<Arc<str>>,
}

impl Materials {
    /// In use from now on.
    pub(super) fn put(&mut self, key: &Arc<str>, material: Material) {
        let Material::Users(users) = material;
        self.lingering.remove(key);
        self.absent.remove(key);
        self.known.insert(Arc::clone(key), Arc::new(Users::new(users)));
        self.fill(key);
    }

    /// It leaves what the proxy has.
    pub(super) fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        if leave == Leave::Gone || !self.in_use(key) {
            self.forget(key);
            return;
        }
        if leave == Leave::Absent {
            self.absent.insert(Arc::clone(key));
        }
        self.lingering.insert(Arc::clone(key));
    }

    /// Nothing of it counts any more.
    pub(super) fn forget(&mut self, key: &Arc<str>) {
        self.lingering.remove(key);
        self.absent.remove(key);
        self.known.remove(key);
        self.fill(key);
    }

    /// Those that a full sync lacked are out of use.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.absent) {
            self.forget(&key);
        }
    }

    /// Forgets what no table names any more.
    pub(super) fn sweep(&mut self) {
        let free: Vec<_> = self.lingering.iter().filter(|key| !self.in_use(key)).cloned().collect();
        for key in free {
            self.forget(&key);
        }
    }

    /// The cell of a Material, filled. The same one as long as a table names it.
    pub(super) fn users(&mut self, key: &str) -> Arc<UsersCell> {
        if let Some(cell) = self.cells.get(key).and_then(Weak::upgrade) {
            return cell;
        }
        // Cells that are free are forgotten when their number would double, so that each pays for itself.
        if self.cells.len() == self.cells.capacity() {
            self.cells.retain(|_, cell| cell.strong_count() > 0);
        }
        let key: Arc<str> = key.into();
        let cell = Arc::new(UsersCell::new(Arc::clone(&key)));
        cell.store(self.known.get(&key).cloned());
        self.cells.insert(key, Arc::downgrade(&cell));
        cell
    }

    fn in_use(&self, key: &Arc<str>) -> bool {
        self.cells.get(key).is_some_and(|cell| cell.strong_count() > 0)
    }

    fn fill(&self, key: &Arc<str>) {
        if let Some(cell) = self.cells.get(key).and_then(Weak::upgrade) {
            cell.store(self.known.get(key).cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::resource::User;

    use super::*;

    fn users(names: &[&str]) -> Material {
        Material::Users(
            names.iter().map(|name| User { name: (*name).into(), hash: "{PLAIN}x".into() }).collect(),
        )
    }

    fn knows(cell: &UsersCell, name: &str) -> Option<bool> {
        Some(cell.users()?.hash(name).is_some())
    }

    #[test]
    fn a_cell_sees_what_comes_changes_and_goes() {
        let mut materials = Materials::default();
        let key: Arc<str> = "ns/users/auth-file".into();
        let cell = materials.users(&key);
        assert_eq!(knows(&cell, "ann"), None, "awaited");
        materials.put(&key, users(&["ann"]));
        assert_eq!(knows(&cell, "ann"), Some(true));
        materials.put(&key, users(&["bob"]));
        assert_eq!(knows(&cell, "ann"), Some(false));
        assert!(Arc::ptr_eq(&cell, &materials.users(&key)), "one cell as long as somebody names it");
        materials.remove(&key, Leave::Unreferred);
        materials.sweep();
        assert_eq!(knows(&cell, "bob"), Some(true), "a table names it still");
        materials.put(&key, users(&["bob"]));
        materials.remove(&key, Leave::Absent);
        assert_eq!(knows(&cell, "bob"), Some(true));
        materials.settle();
        assert_eq!(knows(&cell, "bob"), None);
        materials.put(&key, users(&["bob"]));
        materials.remove(&key, Leave::Gone);
        assert_eq!(knows(&cell, "bob"), None, "at once");
        drop(cell);
        materials.put(&key, users(&["bob"]));
        materials.remove(&key, Leave::Unreferred);
        assert_eq!(knows(&materials.users(&key), "bob"), None, "nobody named it");
    }
}
