//! Materials: Secrets in uses other than as certificates of hosts.

use std::collections::HashSet;

use super::{ConvertError, invalid};
use crate::proto::config;
use crate::resource::{Authorities, BackendIdentity, Material, TicketKeys, User};

impl From<&Material> for config::Material {
    fn from(it: &Material) -> Self {
        match it {
            Material::Users(users) => {
                let user =
                    |User { name, hash }: &User| config::User { name: name.clone(), hash: hash.clone() };
                let users = config::Users { users: users.iter().map(user).collect() };
                Self { users: Some(users), ..Self::default() }
            }
            Material::Authorities(authorities) => {
                Self { authorities: Some(authorities.into()), ..Self::default() }
            }
            Material::BackendIdentity(identity) => {
                Self { backend_identity: Some(identity.into()), ..Self::default() }
            }
            Material::TicketKeys(TicketKeys(keys)) => {
                let keys = config::TicketKeys { keys: keys.clone() };
                Self { ticket_keys: Some(keys), ..Self::default() }
            }
        }
    }
}

impl From<&Authorities> for config::Authorities {
    fn from(it: &Authorities) -> Self {
        Self { certificates: it.certificates.clone(), revocations: it.revocations.clone() }
    }
}

impl From<&BackendIdentity> for config::BackendIdentity {
    fn from(it: &BackendIdentity) -> Self {
        let BackendIdentity { authorities, certificates, key } = it;
        let authorities = authorities.as_ref().map(Into::into);
        Self { authorities, certificates: certificates.clone(), key: key.clone() }
    }
}

impl TryFrom<config::Material> for Material {
    type Error = ConvertError;

    fn try_from(it: config::Material) -> Result<Self, ConvertError> {
        match (it.users, it.authorities, it.backend_identity, it.ticket_keys) {
            (Some(config::Users { users }), None, None, None) => Ok(Self::Users(users_of(users)?)),
            (None, Some(authorities), None, None) => {
                Ok(Self::Authorities(authorities_of(authorities, "authorities")?))
            }
            (None, None, Some(identity), None) => Ok(Self::BackendIdentity(identity_of(identity)?)),
            (None, None, None, Some(keys)) => Ok(Self::TicketKeys(ticket_keys_of(keys)?)),
            _ => Err(invalid("users", "expected exactly one use that this build knows")),
        }
    }
}

fn users_of(users: Vec<config::User>) -> Result<Vec<User>, ConvertError> {
    let mut names = HashSet::new();
    for (i, user) in users.iter().enumerate() {
        if matches!(user.name.split(':').next(), None | Some("")) || !names.insert(user.name.as_str()) {
            let field = format!("users[{i}].name");
            return Err(invalid(field, "expected each name once"));
        }
    }
    Ok(users.into_iter().map(|it| User { name: it.name, hash: it.hash }).collect())
}

/// Minimum size of a key that cannot be guessed.
const LEAST_KEY: usize = 32;

fn ticket_keys_of(it: config::TicketKeys) -> Result<TicketKeys, ConvertError> {
    if it.keys.is_empty() || it.keys.iter().any(|key| key.len() < LEAST_KEY) {
        let problem = format!("expected at least one key, of {LEAST_KEY} bytes or more each");
        return Err(invalid("ticket_keys.keys", problem));
    }
    Ok(TicketKeys(it.keys))
}

fn authorities_of(it: config::Authorities, field: &str) -> Result<Authorities, ConvertError> {
    if it.certificates.is_empty() {
        return Err(invalid(format!("{field}.certificates"), "expected at least one, got none"));
    }
    Ok(Authorities { certificates: it.certificates, revocations: it.revocations })
}

fn identity_of(it: config::BackendIdentity) -> Result<BackendIdentity, ConvertError> {
    let authorities = it.authorities.map(|it| authorities_of(it, "backend_identity.authorities"));
    if it.certificates.is_empty() != it.key.is_empty() {
        return Err(invalid("backend_identity.key", "expected a key with its certificate, or neither"));
    }
    Ok(BackendIdentity { authorities: authorities.transpose()?, certificates: it.certificates, key: it.key })
}
