//! What this proxy has, by bucket, for a control plane that wants to send only the difference.

use shared::kind::Lane;
use shared::proto::config;
use shared::proto::config::proxy_message::Message as FromProxy;
use shared::snapshot::{BUCKETS, Snapshot};

use super::{Close, protocol, wire};

/// Maximum number of entries in a reply, as accepted by a control plane.
const ENTRIES: usize = 4_096;
/// Maximum estimated size of them in bytes; a control plane accepts messages of 256 KiB.
const TEXT: usize = 192 * 1024;

/// The digests of all buckets if none is requested, else the contents of the requested ones.
pub(super) fn answer(
    request: &config::InventoryRequest,
    lane: Lane,
    has: &Snapshot,
) -> Result<config::ProxyMessage, Close> {
    let answer = config::Inventory { lane: lane.to_wire(), ..config::Inventory::default() };
    Ok(wire::message(FromProxy::Inventory(match request.buckets.is_empty() {
        true => config::Inventory { digests: has.digests().concat().into(), ..answer },
        false => match entries(has, lane, &request.buckets)? {
            Some(entries) => config::Inventory { entries, ..answer },
            None => config::Inventory { cut: true, ..answer },
        },
    })))
}

/// `None`: more than a message may have.
fn entries(
    has: &Snapshot,
    lane: Lane,
    buckets: &[u32],
) -> Result<Option<Vec<config::InventoryEntry>>, Close> {
    let (mut entries, mut size) = (Vec::new(), 0);
    for bucket in buckets {
        let named = u16::try_from(*bucket).ok().filter(|bucket| usize::from(*bucket) < BUCKETS);
        let bucket = named.ok_or_else(|| {
            protocol(format!("lane {}: expected a bucket below {BUCKETS}, got {bucket}", lane.as_str()))
        })?;
        for entry in has.bucket(bucket) {
            // Including tags, lengths, kind and version.
            size += entry.key.key.len() + 28;
            if entries.len() == ENTRIES || size > TEXT {
                return Ok(None);
            }
            entries.push(config::InventoryEntry {
                kind: entry.key.kind.to_wire(),
                key: entry.key.key.to_string(),
                version: entry.version.to_bytes(),
            });
        }
    }
    Ok(Some(entries))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use shared::entry::Entry;
    use shared::kind::{Kind, ResourceKey};

    use super::*;

    /// A control plane closes the stream if a reply is larger, and by asking for fewer buckets it gets everything.
    #[test]
    fn an_answer_has_so_many_entries_and_bytes() {
        let has = |count: usize, key: usize| {
            let entry = |at: usize| {
                let key = ResourceKey::new(Kind::Endpoints, format!("{at:0key$}"));
                Arc::new(Entry::from_body(key, 1, Bytes::new()))
            };
            let mut has = Snapshot::default();
            has.extend((0..count).map(entry));
            has
        };
        let all: Vec<u32> = (0..BUCKETS as u32).collect();
        for (count, key, is_whole) in [
            (ENTRIES, 8, true),
            (ENTRIES + 1, 8, false),
            (TEXT / 228, 200, true),
            (TEXT / 228 + 1, 200, false),
        ] {
            let entries = entries(&has(count, key), Lane::Live, &all).unwrap();
            assert_eq!(entries.map(|it| it.len()), is_whole.then_some(count), "{count} keys of {key} bytes");
        }
        let cut = entries(&has(10, 8), Lane::Live, &[BUCKETS as u32]).unwrap_err();
        assert!(matches!(cut, Close::Protocol(_)));
    }
}
