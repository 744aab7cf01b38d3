//! The users of a Secret, as requests ask for them.
//!
//! **Invariant:** neither a hash nor a name is shown, in logs or elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::resource::User;

use super::material::MaterialCell;

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

/// The users of one Material, while there is one; without them nobody can be asked.
pub type UsersCell = MaterialCell<Users>;
