//! What Secrets provide other than server certificates, by key: users, authorities, client identities, each compiled
//! into what tables refer to, in cells of their own.
//!
//! **Invariant:** a version that cannot be read invalidates the one before it: a user who was removed from a list
//! stays removed.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use shared::resource::{self, Material, TICKET_KEYS};

use super::Leave;
use super::sweep::Sweep;
use crate::table::backend_tls::{BackendTls, Identity};
use crate::table::client_auth::ClientAuth;
use crate::table::material::MaterialCell;
use crate::table::policy::backend_tls::BackendTlsConfig;
use crate::table::policy::certificates;
use crate::table::ticket_keys::{TicketKeys, TicketKeysCell};
use crate::table::trust::Trust;
use crate::table::users::{Users, UsersCell};

/// What a Material is compiled into, depending on its use.
trait FromMaterial: Sized + Debug {
    /// The parsed Material.
    type Source: Debug;
    /// The settings of its use.
    type Settings: Clone + PartialEq + Debug;

    fn compile(source: &Self::Source, settings: &Self::Settings) -> Option<Arc<Self>>;

    /// Whether the compiled value may stay when the Material changes from one to the other. What depends on it, such
    /// as open connections, then stays too.
    fn is_same(_: &Self::Source, _: &Self::Source) -> bool {
        false
    }
}

impl FromMaterial for Users {
    type Source = Arc<Self>;
    type Settings = ();

    fn compile(source: &Arc<Self>, (): &()) -> Option<Arc<Self>> {
        Some(Arc::clone(source))
    }
}

impl FromMaterial for BackendTls {
    type Source = Identity;
    type Settings = BackendTlsConfig;

    fn compile(source: &Identity, settings: &BackendTlsConfig) -> Option<Arc<Self>> {
        Self::new(settings, source).map(Arc::new)
    }

    fn is_same(one: &Identity, other: &Identity) -> bool {
        one.is(other)
    }
}

impl FromMaterial for ClientAuth {
    type Source = Authorities;
    type Settings = certificates::ClientAuthConfig;

    fn compile(source: &Authorities, settings: &certificates::ClientAuthConfig) -> Option<Arc<Self>> {
        Some(Arc::new(Self::new(settings, &source.trust, &source.source)))
    }

    fn is_same(one: &Authorities, other: &Authorities) -> bool {
        one.source == other.source
    }
}

/// Parsed authorities.
#[derive(Debug)]
struct Authorities {
    source: resource::Authorities,
    trust: Arc<Trust>,
}

/// All Materials and their cells.
#[derive(Debug, Default)]
pub(super) struct Materials {
    users: MaterialSet<Users>,
    identities: MaterialSet<BackendTls>,
    authorities: MaterialSet<ClientAuth>,
    /// The fleet's ticket keys, whatever they are called. Without them a proxy uses its own, so they are not kept
    /// after their removal.
    ticket_keys: Arc<TicketKeysCell>,
}

impl Materials {
    /// Uses a Material from now on. The previous version is dropped even if this one is unusable.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn put(&mut self, key: &Arc<str>, material: Material) -> Result<(), String> {
        let (mut users, mut identity, mut authorities, mut tickets) = (None, None, None, None);
        let read = match material {
            Material::Users(list) => {
                users = Some(Arc::new(Users::new(list)));
                Ok(())
            }
            Material::BackendIdentity(source) => Identity::new(source)
                .map(|it| identity = Some(it))
                .map_err(|it| format!("backend_identity.{it}")),
            Material::Authorities(source) => match Trust::new(&source) {
                Ok(trust) => {
                    authorities = Some(Authorities { source, trust: Arc::new(trust) });
                    Ok(())
                }
                Err(error) => Err(format!("authorities.{error}")),
            },
            Material::TicketKeys(keys) if **key == *TICKET_KEYS => {
                tickets = Some(Arc::new(TicketKeys::new(&keys)));
                Ok(())
            }
            Material::TicketKeys(_) => Err(format!("ticket_keys: expected them under {TICKET_KEYS:?}")),
        };
        self.set_ticket_keys(key, tickets);
        self.users.set(key, users);
        self.identities.set(key, identity);
        self.authorities.set(key, authorities);
        read
    }

    /// Removes a Material.
    pub(super) fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        let Self { users, identities, authorities, ticket_keys: _ } = self;
        users.remove(key, leave);
        identities.remove(key, leave);
        authorities.remove(key, leave);
        self.set_ticket_keys(key, None);
    }

    /// Whether a Material is in use although it was removed.
    pub(super) fn lingers(&self, key: &str) -> bool {
        let Self { users, identities, authorities, ticket_keys: _ } = self;
        users.lingering.contains(key)
            || identities.lingering.contains(key)
            || authorities.lingering.contains(key)
    }

    /// Drops everything that was compiled from it.
    pub(super) fn forget(&mut self, key: &Arc<str>) {
        let Self { users, identities, authorities, ticket_keys: _ } = self;
        users.forget(key);
        identities.forget(key);
        authorities.forget(key);
        self.set_ticket_keys(key, None);
    }

    /// Drops those that were missing in a full sync.
    pub(super) fn settle(&mut self) {
        let Self { users, identities, authorities, ticket_keys: _ } = self;
        users.settle();
        identities.settle();
        authorities.settle();
    }

    /// Drops what no table refers to any more.
    pub(super) fn sweep(&mut self) {
        let Self { users, identities, authorities, ticket_keys: _ } = self;
        users.sweep();
        identities.sweep();
        authorities.sweep();
    }

    /// The fleet's session ticket keys, in the same cell for all tables.
    pub(super) fn ticket_keys(&self) -> &Arc<TicketKeysCell> {
        &self.ticket_keys
    }

    fn set_ticket_keys(&self, key: &str, keys: Option<Arc<TicketKeys>>) {
        if key == TICKET_KEYS {
            self.ticket_keys.store(keys);
        }
    }

    /// The users of a Material.
    pub(super) fn users(&mut self, key: &str) -> Arc<UsersCell> {
        self.users.cell(key, &())
    }

    /// The client verification policy.
    pub(super) fn client_auth(
        &mut self,
        settings: &certificates::ClientAuthConfig,
    ) -> Arc<MaterialCell<ClientAuth>> {
        self.authorities.cell(&settings.authorities, settings)
    }

    /// TLS settings towards endpoints.
    pub(super) fn backend_tls(&mut self, settings: &BackendTlsConfig) -> Arc<MaterialCell<BackendTls>> {
        if !settings.material.is_empty() {
            return self.identities.cell(&settings.material, settings);
        }
        // Under a key of their own, since there may be many, for as long as a table names it.
        let key: Arc<str> = format!("{settings:?}").into();
        let cell = self.identities.cell(&key, settings);
        self.identities.set(&key, Some(Identity::none()));
        self.identities.remove(&key, Leave::Unreferred);
        cell
    }
}

/// The Materials of one use.
#[derive(Debug)]
struct MaterialSet<T: FromMaterial> {
    known: HashMap<Arc<str>, T::Source>,
    /// One cell per distinct use of a Material; there are few of each.
    cells: HashMap<Arc<str>, Vec<Cell<T>>>,
    sweep: Sweep,
    /// Removed while a path still named them.
    lingering: BTreeSet<Arc<str>>,
    /// Those of them that were missing in a full sync.
    absent: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Cell<T: FromMaterial> {
    settings: T::Settings,
    cell: Weak<MaterialCell<T>>,
}

impl<T: FromMaterial> Default for MaterialSet<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            cells: HashMap::new(),
            sweep: Sweep::default(),
            lingering: BTreeSet::new(),
            absent: BTreeSet::new(),
        }
    }
}

impl<T: FromMaterial> MaterialSet<T> {
    /// Sets its parsed value, or removes it if it is for another use or unusable.
    fn set(&mut self, key: &Arc<str>, source: Option<T::Source>) {
        let Some(source) = source else {
            return self.forget(key);
        };
        self.lingering.remove(key);
        self.absent.remove(key);
        let is_same = self.known.get(key).is_some_and(|before| T::is_same(before, &source));
        if !is_same {
            self.known.insert(Arc::clone(key), source);
            self.fill(key);
        }
    }

    fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        if leave == Leave::Gone || !self.in_use(key) {
            self.forget(key);
            return;
        }
        if leave == Leave::Absent {
            self.absent.insert(Arc::clone(key));
        }
        self.lingering.insert(Arc::clone(key));
    }

    fn forget(&mut self, key: &Arc<str>) {
        self.lingering.remove(key);
        self.absent.remove(key);
        if self.known.remove(key).is_some() {
            self.fill(key);
        }
    }

    fn settle(&mut self) {
        for key in std::mem::take(&mut self.absent) {
            self.forget(&key);
        }
    }

    fn sweep(&mut self) {
        let free: Vec<_> = self.lingering.iter().filter(|key| !self.in_use(key)).cloned().collect();
        for key in free {
            self.forget(&key);
        }
    }

    /// The filled cell of a Material. It is the same object as long as a table refers to it.
    fn cell(&mut self, key: &str, settings: &T::Settings) -> Arc<MaterialCell<T>> {
        let there = self.cells.get(key).into_iter().flatten().find(|it| it.settings == *settings);
        if let Some(cell) = there.and_then(|it| it.cell.upgrade()) {
            return cell;
        }
        self.sweep.when_due(self.cells.len(), || {
            self.cells.retain(|_, cells| {
                cells.retain(|it| it.cell.strong_count() > 0);
                !cells.is_empty()
            });
            self.cells.len()
        });
        let key: Arc<str> = key.into();
        let cell = Arc::new(MaterialCell::new(Arc::clone(&key)));
        cell.store(self.known.get(&key).and_then(|source| T::compile(source, settings)));
        let cells = self.cells.entry(key).or_default();
        cells.retain(|it| it.cell.strong_count() > 0);
        cells.push(Cell { settings: settings.clone(), cell: Arc::downgrade(&cell) });
        cell
    }

    fn in_use(&self, key: &Arc<str>) -> bool {
        self.cells.get(key).is_some_and(|cells| cells.iter().any(|it| it.cell.strong_count() > 0))
    }

    fn fill(&self, key: &Arc<str>) {
        for Cell { settings, cell } in self.cells.get(key).into_iter().flatten() {
            if let Some(cell) = cell.upgrade() {
                cell.store(self.known.get(key).and_then(|source| T::compile(source, settings)));
            }
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
        Some(cell.get()?.hash(name).is_some())
    }

    #[test]
    fn a_cell_sees_what_comes_changes_and_goes() {
        let mut materials = Materials::default();
        let key: Arc<str> = "ns/users/auth-file".into();
        let cell = materials.users(&key);
        assert_eq!(knows(&cell, "ann"), None, "awaited");
        materials.put(&key, users(&["ann"])).unwrap();
        assert_eq!(knows(&cell, "ann"), Some(true));
        materials.put(&key, users(&["bob"])).unwrap();
        assert_eq!(knows(&cell, "ann"), Some(false));
        assert!(Arc::ptr_eq(&cell, &materials.users(&key)), "one cell as long as somebody names it");
        materials.remove(&key, Leave::Unreferred);
        materials.sweep();
        assert_eq!(knows(&cell, "bob"), Some(true), "a table names it still");
        materials.put(&key, users(&["bob"])).unwrap();
        materials.remove(&key, Leave::Absent);
        assert_eq!(knows(&cell, "bob"), Some(true));
        materials.settle();
        assert_eq!(knows(&cell, "bob"), None);
        materials.put(&key, users(&["bob"])).unwrap();
        materials.remove(&key, Leave::Gone);
        assert_eq!(knows(&cell, "bob"), None, "at once");
        drop(cell);
        materials.put(&key, users(&["bob"])).unwrap();
        materials.remove(&key, Leave::Unreferred);
        assert_eq!(knows(&materials.users(&key), "bob"), None, "nobody named it");
    }
}
