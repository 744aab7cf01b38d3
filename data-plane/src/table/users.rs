//! The users of a Secret, as requests ask for them.
//!
//! **Invariant:** neither a hash nor a name is shown, in logs or elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use foldhash::quality::RandomState;
use shared::resource::User;

/// Who may pass, by name.
#[derive(Default)]
pub struct Users(HashMap<Box<str>, Arc<str>, RandomState>);

impl Users {
    /// From a list in which each name stands once.
    pub fn new(users: Vec<User>) -> Self {
        Self(users.into_iter().map(|user| (user.name.into(), user.hash.into())).collect())
    }

    /// What a user's password hashes to.
    pub fn hash(&self, name: &str) -> Option<&Arc<str>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.0.len()).finish()
    }
}

/// The users of one Material, while there is one.
#[derive(Debug)]
pub struct UsersCell {
    /// Key of the Material.
    pub key: Arc<str>,
    users: ArcSwapOption<Users>,
}

impl UsersCell {
    /// Without users: nobody can be asked.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, users: ArcSwapOption::empty() }
    }

    /// The users now; `None` where it is not known who they are.
    pub fn users(&self) -> Option<Arc<Users>> {
        self.users.load_full()
    }

    /// Puts users in place of those it had. For the control thread, and for tests without one.
    pub fn store(&self, users: Option<Arc<Users>>) {
        self.users.store(users);
    }
}
