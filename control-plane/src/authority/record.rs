//! The stored form of the roots: JSON, in a Secret or a file.

use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use shared::pem;
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Authority, Key, Root};

/// Limit of the roots in a record: a rotation has two, or three if one follows another closely.
pub(super) const ROOTS_MAX: usize = 8;

/// Why a text is not a record of an authority. Does not quote the text, which may be secret.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not valid JSON of a record.
    #[error("expected JSON with a list of roots: line {line}, column {column}")]
    Json {
        /// The line at which parsing failed.
        line: usize,
        /// The column in the line.
        column: usize,
    },
    /// No root, or too many.
    #[error("expected 1 to {ROOTS_MAX} roots, got {0}")]
    Count(usize),
    /// The roots are not in the order in which they sign.
    #[error("roots[{0}]: expected the roots in the order in which they sign")]
    Order(usize),
    /// A root is invalid.
    #[error("roots[{index}].{field}: {reason}")]
    Root {
        /// Index of the root.
        index: usize,
        /// The invalid field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    roots: Vec<RootRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootRecord {
    certificate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    signs_from: u64,
}

impl Drop for RootRecord {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Authority {
    /// Parses what [`Self::to_record`] wrote.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn from_record(text: &[u8]) -> Result<Self, RecordError> {
        let place =
            |error: serde_json::Error| RecordError::Json { line: error.line(), column: error.column() };
        let record: Record = serde_json::from_slice(text).map_err(place)?;
        if !(1..=ROOTS_MAX).contains(&record.roots.len()) {
            return Err(RecordError::Count(record.roots.len()));
        }
        let mut roots: Vec<Root> = Vec::with_capacity(record.roots.len());
        for (index, root) in record.roots.iter().enumerate() {
            if roots.last().is_some_and(|before| before.signs_from > root.signs_from) {
                return Err(RecordError::Order(index));
            }
            roots.push(root.read(index)?);
        }
        Ok(Self { roots })
    }

    /// Serialises the roots with their keys.
    pub fn to_record(&self) -> Zeroizing<String> {
        let root = |root: &Root| RootRecord {
            certificate: pem::write("CERTIFICATE", &root.certificate).to_string(),
            key: root.key.as_ref().map(|key| pem::write("PRIVATE KEY", key).to_string()),
            signs_from: root.signs_from,
        };
        let record = Record { roots: self.roots.iter().map(root).collect() };
        // Strings and numbers can always be serialised.
        Zeroizing::new(serde_json::to_string_pretty(&record).unwrap_or_default())
    }
}

impl RootRecord {
    fn read(&self, index: usize) -> Result<Root, RecordError> {
        let bad = |field, reason: String| RecordError::Root { index, field, reason };
        let mut found = pem::certificates(self.certificate.as_bytes())
            .map_err(|error| bad("certificate", error.to_string()))?;
        if found.len() != 1 {
            return Err(bad("certificate", format!("expected one, got {}", found.len())));
        }
        let key = self.key.as_ref().map(|key| {
            let key = pem::private_key(key.as_bytes()).map_err(|error| bad("key", error.to_string()))?;
            KeyPair::try_from(&key[..]).map(Key).map_err(|_| bad("key", "not a key in PKCS#8".to_owned()))?;
            Ok(key)
        });
        Ok(Root { certificate: found.remove(0), key: key.transpose()?, signs_from: self.signs_from })
    }
}
