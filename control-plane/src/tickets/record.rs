//! The stored form of session ticket keys, for a Secret or a file, and their rotation.
//!
//! The first key encrypts, all of them decrypt. A rotation promotes the next key and adds a new next one, so proxies
//! can decrypt with a key long before any proxy encrypts with it; the previous key decrypts for one period more.
//!
//! **Invariant:** sans-I/O: the time and the random bytes are passed in. No error contains a part of a key.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shared::clock::unix;
use shared::secret;
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

/// The key of the Secret that has the record.
pub const RECORD: &str = "ticket-keys.json";

/// How long a key encrypts.
pub const PERIOD: Duration = Duration::from_secs(12 * 3600);

/// Bytes of a key.
const KEY: usize = 32;
/// Limit of the keys in a record.
const MOST: usize = 8;

/// Random bytes for a key.
pub type Random = Zeroizing<[u8; KEY]>;

/// Why a text is not a record. Does not quote the text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not valid JSON of a record.
    #[error("expected JSON with a time and a list of keys: line {line}, column {column}")]
    Json {
        /// The line at which parsing failed.
        line: usize,
        /// The column in the line.
        column: usize,
    },
    /// No key, or too many.
    #[error("expected 1 to {MOST} keys, got {0}")]
    Count(usize),
    /// A key is invalid.
    #[error("keys[{0}]: expected base64 of {KEY} bytes")]
    Key(usize),
}

/// The keys, and since when the first one encrypts.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    rotated: u64,
    keys: Vec<Bytes>,
}

/// Does not show the keys.
impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("rotated", &self.rotated)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rotated: u64,
    keys: Vec<String>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

impl Record {
    /// Creates the first record.
    pub fn create(now: SystemTime, random: impl Fn() -> Random) -> Self {
        Self { rotated: unix(now), keys: vec![key(&random()), key(&random())] }
    }

    /// How old it is; `None`: it is of the future, as some clock is wrong.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        unix(now).checked_sub(self.rotated).map(Duration::from_secs)
    }

    /// The next record, if this one is old enough.
    pub fn due(&self, now: SystemTime, age: Duration, random: impl Fn() -> Random) -> Option<Self> {
        if age < PERIOD {
            return None;
        }
        let mut keys = self.keys.iter().cloned();
        let before = keys.next();
        // A record with one key has no next one yet.
        let first = keys.next().unwrap_or_else(|| key(&random()));
        Some(Self {
            rotated: unix(now),
            keys: [Some(first), Some(key(&random())), before].into_iter().flatten().collect(),
        })
    }

    /// The first one encrypts, all of them decrypt.
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    /// Parses a record.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(text: &[u8]) -> Result<Self, RecordError> {
        let written: Written = serde_json::from_slice(text)
            .map_err(|error| RecordError::Json { line: error.line(), column: error.column() })?;
        if written.keys.is_empty() || written.keys.len() > MOST {
            return Err(RecordError::Count(written.keys.len()));
        }
        let keys = written.keys.iter().enumerate().map(|(index, text)| {
            let bytes = Zeroizing::new(STANDARD.decode(text).unwrap_or_default());
            if bytes.len() == KEY { Ok(secret::kept(bytes.to_vec())) } else { Err(RecordError::Key(index)) }
        });
        Ok(Self { rotated: written.rotated, keys: keys.collect::<Result<_, _>>()? })
    }

    /// Serialises the record.
    pub fn to_text(&self) -> Zeroizing<String> {
        let keys = self.keys.iter().map(|key| STANDARD.encode(key)).collect();
        let written = Written { rotated: self.rotated, keys };
        // Numbers and strings can always be serialised.
        Zeroizing::new(serde_json::to_string(&written).unwrap_or_default())
    }
}

fn key(random: &Random) -> Bytes {
    secret::kept(random.to_vec())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_opens_before_it_seals_and_after() {
        let count = Cell::new(0_u8);
        let random = || {
            count.set(count.get() + 1);
            Zeroizing::new([count.get(); KEY])
        };
        let names = |record: &Record| record.keys().iter().map(|key| key[0]).collect::<Vec<_>>();
        let (start, period) = (1_000_000, PERIOD.as_secs());
        let first = Record::create(at(start), random);
        assert_eq!(names(&first), [1, 2]);
        assert_eq!(first.due(at(start + period - 1), PERIOD - Duration::from_secs(1), random), None);
        let second = first.due(at(start + period), PERIOD, random).unwrap();
        assert_eq!(names(&second), [2, 3, 1]);
        let third = second.due(at(start + 2 * period), PERIOD, random).unwrap();
        assert_eq!(names(&third), [3, 4, 2], "what sealed before the last rotation opens no more");
        let age = |after: u64| third.age(at(start + 2 * period + after));
        assert_eq!((age(0), age(7)), (Some(Duration::ZERO), Some(Duration::from_secs(7))));
        assert_eq!(third.age(at(start)), None, "of a time to come: somebody's clock was wrong");
    }

    #[test]
    fn what_is_written_is_read() {
        let record = Record::create(at(7), || Zeroizing::new([9; KEY]));
        assert_eq!(Record::parse(record.to_text().as_bytes()), Ok(record));
        let key = STANDARD.encode([1; KEY]);
        let one = Record::parse(format!(r#"{{"rotated":7,"keys":["{key}"]}}"#).as_bytes()).unwrap();
        assert_eq!(
            one.due(at(7 + PERIOD.as_secs()), PERIOD, || Zeroizing::new([2; KEY])).unwrap().keys().len(),
            3
        );
    }

    #[test]
    fn what_is_none_is_told_without_a_word_of_it() {
        for (text, expected) in [
            ("", RecordError::Json { line: 1, column: 0 }),
            (r#"{"rotated":1,"keys":[]}"#, RecordError::Count(0)),
            (r#"{"rotated":1,"keys":["aHVudGVyMg=="]}"#, RecordError::Key(0)),
            (r#"{"rotated":1,"keys":["hunter2"]}"#, RecordError::Key(0)),
        ] {
            assert_eq!(Record::parse(text.as_bytes()), Err(expected), "{text}");
        }
        let many = vec![STANDARD.encode([1; KEY]); MOST + 1];
        let many = serde_json::json!({"rotated": 1, "keys": many}).to_string();
        assert_eq!(Record::parse(many.as_bytes()), Err(RecordError::Count(MOST + 1)));
        let record = Record::create(at(7), || Zeroizing::new([0xab; KEY]));
        assert!(!format!("{record:?}").contains("171") && !format!("{record:?}").contains("ab,"));
    }
}
