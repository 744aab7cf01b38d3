//! The certificate authority of the planes: its roots, what they sign, and their rotation.
//!
//! A root is trusted before and after the time in which it signs. The record of the roots says when each one signs, so all replicas
//! that read the same record agree without communicating:
//!
//! ```text
//! published ── all who hold a certificate renew it, and learn the new root ──▶ signs ── its successor signs ──▶ dropped
//!           └──────────── OVERLAP lives of a certificate ───────────┘               └ OVERLAP lives ┘
//! ```
//!
//! **Invariant:** whoever holds a valid certificate that was renewed in time believes whoever else does.

mod leaf;
mod record;

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use shared::clock::unix;
use shared::identity::validity;
use shared::tls::join::hex;
use shared::tls::random;
use shared::{pem, secret, tls};
use thiserror::Error;
use zeroize::Zeroize as _;

pub use leaf::Names;
pub use record::RecordError;
pub use shared::identity::SLACK;

/// A root signs for so long before another takes its place.
const SIGNS: Duration = Duration::from_secs(365 * 24 * 3600);
/// A root is good for so long: it is trusted well beyond what it signs.
const ROOT: Duration = Duration::from_secs(3 * 365 * 24 * 3600);
/// A root that was made so long after now: one's own clock is late, or the one that made it was ahead. What is less passes by
/// itself.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
/// Lives of a certificate that two roots are trusted side by side: one in which everybody renews, and half a one for
/// those whose clock or network is late.
const OVERLAP: f64 = 1.5;

/// Why nothing was issued.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IssueError {
    /// Keys and certificates could not be made.
    #[error("signing failed: {0}")]
    Signing(#[from] rcgen::Error),
    /// What was asked for is not a request for a certificate.
    #[error("expected a certificate signing request (PKCS#10) of at most {REQUEST_MAX} bytes")]
    Request,
    /// A rotation has not ended.
    #[error("a rotation is under way: the next root signs in {} s", .0.as_secs())]
    Rotating(Duration),
    /// The root that should sign cannot.
    #[error("the record of the authority has no key for the root that signs now")]
    NoKey,
}

/// Bytes of a request at most.
pub const REQUEST_MAX: usize = 4 * 1024;

/// The roots, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authority {
    roots: Vec<Root>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq)]
struct Root {
    /// DER.
    certificate: Bytes,
    /// PKCS#8. `None`: it has signed all that it ever will.
    key: Option<Bytes>,
    /// Seconds since 1970.
    signs_from: u64,
}

/// What a root does, as of some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It is believed and signs later.
    Believed,
    /// It signs.
    Signs,
    /// It signs no longer, and is trusted until the certificates that it signed have expired.
    Leaves,
}

/// A root as people may know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootState {
    /// As join tokens pin it.
    pub digest: [u8; 32],
    /// What it does.
    pub phase: Phase,
    /// When it began to sign, or will.
    pub signs_from: SystemTime,
    /// When it is believed no more; `None`: no other follows yet.
    pub leaves_at: Option<SystemTime>,
    /// The end of its certificate.
    pub until: Option<SystemTime>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("signs_from", &self.signs_from).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one, which signs at once.
    ///
    /// # Errors
    /// Where no key can be made.
    pub fn create(now: SystemTime) -> Result<Self, IssueError> {
        Ok(Self { roots: vec![Root::create(now, now)?] })
    }

    /// The certificates of all roots that are believed, DER.
    pub fn trusted(&self) -> Vec<Bytes> {
        self.roots.iter().map(|root| root.certificate.clone()).collect()
    }

    /// The same as text, the one that signs now first.
    pub fn trusted_pem(&self, now: SystemTime) -> String {
        let mut roots: Vec<&Root> = self.roots.iter().collect();
        roots[..=self.position(now)].rotate_right(1);
        roots.iter().map(|root| pem::write("CERTIFICATE", &root.certificate).to_string()).collect()
    }

    /// The root that signs now, DER.
    pub fn signs(&self, now: SystemTime) -> Bytes {
        self.signer(now).certificate.clone()
    }

    /// The roots, the oldest first, and what each does now.
    pub fn states(&self, now: SystemTime, life: Duration) -> Vec<RootState> {
        let signer = self.position(now);
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = |(at, root): (usize, &Root)| RootState {
            digest: tls::pin(&root.certificate),
            phase: match at.cmp(&signer) {
                Ordering::Less => Phase::Leaves,
                Ordering::Equal => Phase::Signs,
                Ordering::Greater => Phase::Believed,
            },
            signs_from: time(root.signs_from),
            leaves_at: self.roots.get(at + 1).map(|after| time(after.signs_from + overlap(life))),
            until: validity(&root.certificate).map(|(_, until)| until),
        };
        self.roots.iter().enumerate().map(state).collect()
    }

    /// When the last root that was added signs; in the past, unless a rotation is under way.
    pub fn signs_from(&self) -> SystemTime {
        let last = self.roots.last().map_or(0, |root| root.signs_from);
        SystemTime::UNIX_EPOCH + Duration::from_secs(last)
    }

    /// With a new root, which signs when everybody whose certificates live for `life` has heard of it. For who asks for it
    /// this clock is right: roots of a time to come put off nothing.
    ///
    /// # Errors
    /// Where a rotation is under way already.
    pub fn rotate(&self, now: SystemTime, life: Duration) -> Result<Self, IssueError> {
        self.present(now).followed(now, life)
    }

    /// Whether the last root is of a time to come: this clock is late, or some other one was far ahead.
    pub fn is_of_the_future(&self, now: SystemTime) -> bool {
        self.roots.last().is_some_and(|root| root.is_of_the_future(now))
    }

    /// Without roots of a time to come, which would put off the next rotation until then. Nobody holds what one of them signed,
    /// as long as there is another one that has its key. One that is alone signs already, whatever it says.
    fn present(&self, now: SystemTime) -> Self {
        let mut next = self.clone();
        while let Some((last, before)) = next.roots.split_last()
            && last.is_of_the_future(now)
            && before.iter().any(|root| root.key.is_some())
        {
            next.roots.pop();
        }
        if next.is_of_the_future(now) {
            for root in &mut next.roots {
                root.signs_from = root.signs_from.min(unix(now));
            }
        }
        next
    }

    /// With a new root: never before the last one signs, so that a clock which is a little late does not let the new one
    /// sign before anybody has heard of it.
    fn followed(mut self, now: SystemTime, life: Duration) -> Result<Self, IssueError> {
        if let Ok(left) = self.signs_from().duration_since(now)
            && !left.is_zero()
        {
            return Err(IssueError::Rotating(left));
        }
        self.roots.push(Root::create(now, now + life.mul_f64(OVERLAP))?);
        Ok(self)
    }

    /// Both, where the other one stands in the record in the place of this one: what this one signed stays good, and what stands in
    /// the record takes over when everybody whose certificates live for `life` has heard of it, as after a rotation. `None`: the other
    /// one knows the root that signs here, or there is no room for all of their roots.
    pub fn beside(&self, other: &Self, now: SystemTime, life: Duration) -> Option<Self> {
        let has = |roots: &[Root], root: &Root| roots.iter().any(|it| it.certificate == root.certificate);
        if has(&other.roots, self.signer(now)) {
            return None;
        }
        let mut both = self.clone();
        let later = unix(now).saturating_add(overlap(life)).max(unix(self.signs_from()));
        for root in other.roots.iter().filter(|root| !has(&self.roots, root)) {
            both.roots.push(Root { signs_from: root.signs_from.max(later), ..root.clone() });
        }
        (both.roots.len() <= record::ROOTS_MAX).then_some(both)
    }

    /// Whether a record that was read so long ago can have lost the root that signed then by rotations alone.
    pub fn may_have_passed(since: Duration, life: Duration) -> bool {
        since >= life.mul_f64(OVERLAP)
    }

    /// What the record should say by now, where that is something else: an old root goes, or loses its key; where the last
    /// one has signed for long enough, a new one comes.
    ///
    /// A clock that is late does only what others did or will do. So nothing is made of a root of a time to come: nothing in the
    /// record tells a clock that was ahead from one's own that is late, and a new root that signs in the real past would
    /// end the trust in all others at once.
    ///
    /// # Errors
    /// Where no key can be made.
    pub fn due(&self, now: SystemTime, life: Duration) -> Result<Option<Self>, IssueError> {
        let seconds = unix(now);
        let overlap = overlap(life);
        let mut next = self.clone();
        // Superseded for so long that nothing it signed is good any more.
        let kept =
            |at: usize| self.roots.get(at + 1).is_none_or(|after| after.signs_from + overlap > seconds);
        let first = (0..self.roots.len()).find(|at| kept(*at)).unwrap_or_default();
        next.roots.drain(..first);
        let signer = next.position(now);
        // Whatever is stolen later signs nothing.
        for root in next.roots.iter_mut().take(signer) {
            root.key = None;
        }
        let signed_long = now.duration_since(self.signs_from()).is_ok_and(|signed| signed > SIGNS);
        if signed_long && !self.is_of_the_future(now) {
            next = next.followed(now, life)?;
        }
        Ok((next != *self).then_some(next))
    }

    fn signer(&self, now: SystemTime) -> &Root {
        &self.roots[self.position(now)]
    }

    /// The last root that signs already. Where there is none with a key, because this clock is behind the one of whoever
    /// wrote the record, the first that can: it is believed as well. There is always a root: a record without one is refused.
    fn position(&self, now: SystemTime) -> usize {
        let seconds = unix(now);
        let signs = self.roots.iter().rposition(|root| root.signs_from <= seconds && root.key.is_some());
        signs.or_else(|| self.roots.iter().position(|root| root.key.is_some())).unwrap_or_default()
    }
}

/// Seconds that a root is believed after it has signed.
fn overlap(life: Duration) -> u64 {
    life.mul_f64(OVERLAP).as_secs().max(1)
}

impl Root {
    fn create(now: SystemTime, signs_from: SystemTime) -> Result<Self, IssueError> {
        let mut name = DistinguishedName::new();
        // Each has a name of its own, lest one is looked for by the name of another.
        name.push(DnType::CommonName, format!("Firth {}", *hex(random::<8>().as_ref())));
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = (now - SLACK).into();
        params.not_after = (now + ROOT).into();
        let key = Key(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?);
        let certificate = Bytes::copy_from_slice(params.self_signed(&key.0)?.der());
        let signs_from = unix(signs_from);
        Ok(Self { certificate, key: Some(secret::kept(key.0.serialized_der())), signs_from })
    }

    fn is_of_the_future(&self, now: SystemTime) -> bool {
        validity(&self.certificate).is_some_and(|(from, _)| from > now + AHEAD)
    }

    /// Signs with it.
    fn sign<T>(
        &self,
        with: impl FnOnce(&Issuer<'_, &KeyPair>) -> Result<T, rcgen::Error>,
    ) -> Result<T, IssueError> {
        let key = self.key.as_ref().ok_or(IssueError::NoKey)?;
        let key = Key(KeyPair::try_from(&key[..])?);
        let certificate = rustls_pki_types::CertificateDer::from_slice(&self.certificate);
        Ok(with(&Issuer::from_ca_cert_der(&certificate, &key.0)?)?)
    }
}

/// A key that is wiped when it has been used.
pub(crate) struct Key(pub(crate) KeyPair);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests;
