//! The fleet's session ticket keys: they encrypt TLS sessions that clients keep, so that any proxy can resume them.
//!
//! A ticket is the name of its key, 16 random bytes, and the session, encrypted with AES-256-GCM. Its key and nonce
//! are used for this ticket only, and derived from the random bytes and the fleet's key (keyed BLAKE3). So no number
//! of tickets wears a key out.
//!
//! **Invariant:** neither keys nor plaintext sessions are shown, and memory that holds a key is wiped when it is
//! freed.

use std::fmt;

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand;
use shared::resource;
use zeroize::Zeroizing;

/// Bytes of a key's name, and of the random part.
const NAME: usize = 16;
/// Longer sessions are not put in tickets: RFC 8446 section 4.6.1 limits a ticket to 65,535 bytes, and each
/// ClientHello carries it.
const LONGEST: usize = 16 * 1024;

/// The keys: the first one encrypts, all of them decrypt.
pub struct TicketKeys(Vec<TicketKey>);

/// The current keys, if there are any.
pub type TicketKeysCell = ArcSwapOption<TicketKeys>;

struct TicketKey {
    name: [u8; NAME],
    secret: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketKeys").field(&self.0.len()).finish()
    }
}

impl TicketKeys {
    /// From the resource that the control plane sent.
    pub fn new(resource::TicketKeys(keys): &resource::TicketKeys) -> Self {
        Self(keys.iter().map(|key| TicketKey::new(key)).collect())
    }

    /// Encrypts a session into a ticket; `None` if it is too long.
    pub fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        if session.len() > LONGEST {
            return None;
        }
        let key = self.0.first()?;
        let mut random = [0; NAME];
        rand::fill(&mut random).ok()?;
        let (cipher, nonce) = key.of_ticket(&random)?;
        let mut sealed = session.to_vec();
        cipher.seal_in_place_append_tag(nonce, Aad::from(key.name), &mut sealed).ok()?;
        Some([&key.name[..], &random, &sealed].concat())
    }

    /// Decrypts the session of a ticket; `None` if it is not encrypted with one of these keys, or was modified.
    pub fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (random, sealed) = rest.split_first_chunk::<NAME>()?;
        let key = self.0.iter().find(|key| key.name == *name)?;
        let (cipher, nonce) = key.of_ticket(random)?;
        let mut session = sealed.to_vec();
        let length = cipher.open_in_place(nonce, Aad::from(key.name), &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
    }
}

impl TicketKey {
    fn new(key: &[u8]) -> Self {
        let mut name = [0; NAME];
        let mut hasher = blake3::Hasher::new_derive_key("firth 2026 name of a session ticket key");
        hasher.update(key).finalize_xof().fill(&mut name);
        let secret = Zeroizing::new(blake3::derive_key("firth 2026 session ticket key", key));
        Self { name, secret }
    }

    fn of_ticket(&self, random: &[u8; NAME]) -> Option<(LessSafeKey, Nonce)> {
        let mut bytes = Zeroizing::new([0; 32 + 12]);
        blake3::Hasher::new_keyed(&self.secret).update(random).finalize_xof().fill(&mut *bytes);
        let (key, nonce) = bytes.split_at(32);
        let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
        Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(first: &[u8]) -> TicketKeys {
        let keys = first.iter().map(|byte| vec![*byte; 32].into()).collect();
        TicketKeys::new(&resource::TicketKeys(keys))
    }

    #[test]
    fn ticket_is_opened_by_any_proxy_with_the_key() {
        let ticket = keys(&[1, 2]).seal(b"session").unwrap();
        assert_eq!(keys(&[1, 2]).open(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(keys(&[2, 3, 1]).open(&ticket).as_deref(), Some(&b"session"[..]), "rotated");
        assert_eq!(keys(&[3, 4, 2]).open(&ticket), None);
        let next = keys(&[2, 3, 1]).seal(b"session").unwrap();
        assert!(keys(&[1, 2]).open(&next).is_some(), "a proxy that has not heard yet opens it, too");
    }

    #[test]
    fn modified_ticket_is_not_opened() {
        let keys = keys(&[1]);
        let ticket = keys.seal(b"session").unwrap();
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(keys.open(&changed), None, "byte {place}");
            assert_eq!(keys.open(&ticket[..place]), None, "{place} bytes");
        }
        assert_ne!(keys.seal(b"session").unwrap()[NAME..], ticket[NAME..], "no two are alike");
        assert_eq!(keys.seal(&vec![0; LONGEST + 1]), None);
        assert!(keys.seal(&vec![0; LONGEST]).is_some());
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", keys(&[7, 8])), "TicketKeys(2)");
    }
}
