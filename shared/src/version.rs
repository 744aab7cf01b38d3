//! Content hashes and ids that identify states: of a resource, a lane, or a process' log.
//!
//! **Invariant:** a version depends on kind, key and body alone, not on a clock, counter, process or secret, so that
//! replicas, disks and offline tools agree on it.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kind::Kind;

/// Defines a newtype of 16 bytes that is shown in hex.
macro_rules! sixteen {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// From the wire; `None` unless it is 16 bytes.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// For the wire.
            pub fn to_bytes(self) -> bytes::Bytes {
                bytes::Bytes::copy_from_slice(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

sixteen! {
    /// Content hash of one resource: the first 128 bits of BLAKE3 over kind, key and body.
    Version
}

sixteen! {
    /// Merkle root over all resources of a lane. What users call *the version* is the CONFIG root.
    Root
}

sixteen! {
    /// Random id of one control-plane process: identifies the log that a [`Seq`] belongs to.
    Lineage
}

sixteen! {
    /// Identifies the cluster or folder that a control plane reads.
    Source
}

impl Source {
    /// From the kind of source, and a name that is unique among sources of that kind.
    pub fn of(kind: &str, name: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(kind.len() as u64).to_le_bytes());
        hasher.update(kind.as_bytes());
        hasher.update(name);
        Self(first_half(&hasher.finalize()))
    }
}

impl Version {
    /// The version of a resource.
    pub fn of(kind: Kind, key: &str, body: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        // Lengths separate (key, body) pairs that would be ambiguous otherwise.
        hasher.update(&[kind.number()]);
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key.as_bytes());
        hasher.update(body);
        Self(first_half(&hasher.finalize()))
    }
}

impl Root {
    /// What users see and type: the first 12 hex digits.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl Lineage {
    /// A new one, for a process that starts.
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_le_bytes())
    }
}

/// A secret that a control plane gives a proxy with the Welcome: with it the proxy can replace its own stream. Never
/// shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Claim(pub [u8; 16]);

impl Claim {
    /// A new, unguessable claim.
    pub fn random() -> Self {
        // The standard library's keyed hash: its key is random, and cannot be derived from its output.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut claim = [0; 16];
        for (half, bytes) in claim.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&KEY.hash_one((count, half)).to_le_bytes());
        }
        Self(claim)
    }

    /// As bytes of a message.
    pub fn to_bytes(self) -> bytes::Bytes {
        bytes::Bytes::copy_from_slice(&self.0)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("claim")
    }
}

/// Position in the log of one process. 0 is before everything: "has nothing".
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Seq(pub u64);

impl Seq {
    /// The next position.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first 128 of BLAKE3's 256 bits.
pub fn first_half(hash: &blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::{Lineage, Root, Seq, Source, Version};
    use crate::kind::Kind;

    #[test]
    fn identities_are_shown_in_hex_and_read_from_sixteen_bytes() {
        let root = Root([0xab; 16]);
        assert_eq!(root.to_string(), "ab".repeat(16));
        assert_eq!(root.short(), "abababababab");
        assert_eq!(Root::from_slice(&root.to_bytes()), Some(root));
        assert_eq!((Root::from_slice(&[0; 15]), Root::from_slice(&[0; 17])), (None, None));
        assert_ne!(Lineage::random(), Lineage::random());
        assert_eq!(Seq(1).next(), Seq(2));
    }

    #[test]
    fn key_and_body_do_not_run_together() {
        assert_ne!(Version::of(Kind::Host, "ab", b"c"), Version::of(Kind::Host, "a", b"bc"));
        assert_ne!(Version::of(Kind::Host, "a", b""), Version::of(Kind::Route, "a", b""));
        assert_eq!(Version::of(Kind::Host, "a", b"b"), Version::of(Kind::Host, "a", b"b"));
        assert_ne!(Source::of("ab", b"c"), Source::of("a", b"bc"));
    }
}
