//! The users of a Secret, in the form in which requests need them.
//!
//! **Invariant:** neither a hash nor a name is shown, in logs or elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::resource::User;

use super::material::MaterialCell;

/// The users of a list, by name.
#[derive(Default)]
pub struct Users(HashMap<Box<str>, Arc<str>, RandomState>);

impl Users {
    /// From a list with unique names.
    pub fn new(users: Vec<User>) -> Self {
        Self(users.into_iter().map(|user| (user.name.into(), user.hash.into())).collect())
    }

    /// The password hash of a user.
    pub fn hash(&self, name: &str) -> Option<&Arc<str>> {
        self.0.get(name)
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.0.len()).finish()
    }
}

/// The users of one Material, while it is available; without them nobody can be authenticated.
pub type UsersCell = MaterialCell<Users>;
