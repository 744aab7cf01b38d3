//! Elects the replica that writes: the holder of a Lease (coordination.k8s.io/v1), compatible with client-go.
//!
//! **Invariant:** pure. The expiry of another replica's hold is counted from when this process saw its renewal, by its
//! own clock: clocks of machines differ. A holder stops writing after half of the time after which others may take
//! over, so a request that is under way then ends before that.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

/// The contents of a Lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// If empty, it has no holder.
    holder: String,
    renewed: String,
    acquired: String,
    transitions: i64,
    /// Its resource version.
    version: String,
}

impl Record {
    /// Parses a Lease.
    ///
    /// # Errors
    /// If it is not one.
    pub fn read(text: &str) -> Result<Self, String> {
        let lease: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let word = |pointer: &str| {
            lease.pointer(pointer).and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
        };
        let version = version_in(&lease).ok_or("expected a Lease with a resourceVersion")?;
        Ok(Self {
            holder: word("/spec/holderIdentity"),
            renewed: word("/spec/renewTime"),
            acquired: word("/spec/acquireTime"),
            transitions: lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0),
            version,
        })
    }
}

/// The resource version of an object.
pub fn version_of(text: &str) -> Option<String> {
    version_in(&serde_json::from_str(text).ok()?)
}

fn version_in(object: &Value) -> Option<String> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned)
}

/// A write to the Lease.
#[derive(Clone, PartialEq, Debug)]
pub struct Bid {
    /// Create it; else replace the version that was read.
    pub is_new: bool,
    /// The Lease.
    pub lease: Value,
}

/// The state of one replica in the election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    ttl: Duration,
    /// The contents that were last read, and since when they are unchanged.
    seen: Option<(Record, Instant)>,
}

impl Election {
    /// Without any knowledge. `ttl`: time after which others may take over.
    pub fn new(identity: String, ttl: Duration) -> Self {
        Self { identity, ttl, seen: None }
    }

    /// How long a renewed hold may be used.
    pub fn good_for(&self) -> Duration {
        self.ttl / 2
    }

    /// Interval of attempts.
    pub fn pace(&self) -> Duration {
        self.ttl / 4
    }

    /// The write that acquires or renews the Lease; `None`: another replica holds it.
    pub fn bid(&mut self, found: Option<Record>, now: Instant, wall: SystemTime) -> Option<Bid> {
        let Some(record) = found else {
            self.seen = None;
            return Some(Bid { is_new: true, lease: self.lease(None, wall) });
        };
        let since = match &self.seen {
            Some((before, since)) if *before == record => *since,
            _ => now,
        };
        let is_over = now.saturating_duration_since(since) >= self.ttl;
        let is_free = record.holder.is_empty() || record.holder == self.identity || is_over;
        let bid = is_free.then(|| Bid { is_new: false, lease: self.lease(Some(&record), wall) });
        self.seen = Some((record, since));
        bid
    }

    /// The write that releases the Lease; `None`: it is not held.
    pub fn release(&self, found: &Record, wall: SystemTime) -> Option<Value> {
        (found.holder == self.identity).then(|| {
            let mut lease = self.lease(Some(found), wall);
            lease["spec"]["holderIdentity"] = "".into();
            lease["spec"]["leaseDurationSeconds"] = 1.into();
            lease
        })
    }

    fn lease(&self, over: Option<&Record>, wall: SystemTime) -> Value {
        let now = format!("{:.6}", jiff::Timestamp::try_from(wall).unwrap_or_default());
        let mine = over.filter(|it| it.holder == self.identity && !it.acquired.is_empty());
        let transitions = match (over, mine) {
            (Some(over), None) => over.transitions + 1,
            (Some(over), Some(_)) => over.transitions,
            (None, _) => 0,
        };
        let mut metadata = json!({});
        if let Some(over) = over {
            metadata["resourceVersion"] = over.version.as_str().into();
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.ttl.as_secs().max(1),
                "acquireTime": mine.map_or(&now, |it| &it.acquired),
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn record(holder: &str, renewed: &str, version: &str) -> Record {
        let lease = json!({"metadata": {"resourceVersion": version}, "spec": {
            "holderIdentity": holder, "renewTime": renewed, "acquireTime": "long ago", "leaseTransitions": 3}});
        Record::read(&lease.to_string()).unwrap()
    }

    #[test]
    fn nobody_s_is_taken_and_somebody_s_is_left_until_it_was_not_renewed_for_its_time() {
        let (mut us, now, wall) = (Election::new("us".into(), TTL), Instant::now(), SystemTime::UNIX_EPOCH);
        let first = us.bid(None, now, wall).unwrap();
        assert!(first.is_new && first.lease["metadata"].get("resourceVersion").is_none());
        assert_eq!(first.lease["spec"]["renewTime"], "1970-01-01T00:00:00.000000Z");
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(us.bid(Some(record("them", "1", "7")), at(0), wall), None);
        // Renewed meanwhile: the time starts again, whatever the holder's clock says.
        assert_eq!(us.bid(Some(record("them", "2", "8")), at(29), wall), None);
        assert_eq!(us.bid(Some(record("them", "2", "8")), at(58), wall), None);
        let bid = us.bid(Some(record("them", "2", "8")), at(59), wall).unwrap();
        assert!(!bid.is_new);
        assert_eq!(bid.lease["metadata"]["resourceVersion"], "8", "over what was read, or not at all");
        assert_eq!(bid.lease["spec"]["leaseTransitions"], 4);
        assert_ne!(bid.lease["spec"]["acquireTime"], "long ago");
        assert!(us.bid(Some(record("", "2", "9")), at(59), wall).is_some(), "it was given back");
    }

    /// One that comes again as it was is another one.
    #[test]
    fn a_lease_that_was_gone_meanwhile_has_all_its_time() {
        let (mut us, now, wall) = (Election::new("us".into(), TTL), Instant::now(), SystemTime::UNIX_EPOCH);
        let them = || Some(record("them", "1", "7"));
        assert_eq!(us.bid(them(), now, wall), None);
        assert!(us.bid(None, now + TTL / 2, wall).is_some());
        assert_eq!(us.bid(them(), now + TTL, wall), None);
        assert!(us.bid(them(), now + TTL * 2, wall).is_some());
    }

    #[test]
    fn what_is_ours_is_renewed_and_given_back() {
        let (mut us, now, wall) = (Election::new("us".into(), TTL), Instant::now(), SystemTime::UNIX_EPOCH);
        let bid = us.bid(Some(record("us", "1", "7")), now, wall).unwrap();
        assert_eq!(
            (&bid.lease["spec"]["leaseTransitions"], &bid.lease["spec"]["acquireTime"]),
            (&3.into(), &"long ago".into())
        );
        let free = us.release(&record("us", "1", "8"), wall).unwrap();
        assert_eq!(
            (&free["spec"]["holderIdentity"], &free["metadata"]["resourceVersion"]),
            (&"".into(), &"8".into())
        );
        assert_eq!(
            free["spec"]["leaseDurationSeconds"], 1,
            "others that know the Lease's own time wait no longer"
        );
        assert_eq!(us.release(&record("them", "1", "8"), wall), None);
        // Even with a request's timeout of ten seconds, that is before another replica takes over.
        assert!(us.good_for() + Duration::from_secs(10) < TTL && us.pace() < us.good_for());
        assert!(Record::read("{}").is_err());
    }
}
