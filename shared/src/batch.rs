//! The digest of a batch on the wire: covers what neither the versions of its resources nor the root after it cover.
//!
//! A proxy computes versions and roots from the bytes that it received, so a flipped bit of a kind, key or body is
//! detected. `min_schema`, `gone` and the log position are in neither; each of them changes what is served.
//!
//! **Invariant:** two batches that differ in any field that a proxy reads have different digests.

use crate::proto::config::Batch;
use crate::version::first_half;

/// Sets the digest of a batch that is otherwise complete.
pub fn seal(batch: &mut Batch) {
    batch.check = bytes::Bytes::copy_from_slice(&digest(batch));
}

/// Whether a batch matches its digest. Versions are taken as stated: the reader of the resources verifies them.
pub fn is_whole(batch: &Batch) -> bool {
    batch.check == digest(batch)[..]
}

fn digest(batch: &Batch) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    let mut text = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    text(&batch.lane.to_le_bytes());
    text(&batch.from.to_le_bytes());
    text(&batch.to.to_le_bytes());
    text(&batch.root_after);
    text(&[u8::from(batch.more)]);
    text(&(batch.up.len() as u64).to_le_bytes());
    for resource in &batch.up {
        // A version covers kind, key and body.
        text(&resource.version);
        text(&resource.min_schema.to_le_bytes());
    }
    for removal in &batch.removed {
        text(&removal.kind.to_le_bytes());
        text(removal.key.as_bytes());
        text(&[u8::from(removal.gone)]);
    }
    // Left out if empty, for peers that do not know it. Removals are three texts each, so it cannot be taken for a part
    // of one.
    if !batch.base.is_empty() {
        text(&batch.base);
    }
    first_half(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::{is_whole, seal};
    use crate::proto::config::{Batch, Removal, Resource};

    /// A key may hold the bytes of what follows it.
    #[test]
    fn fields_do_not_run_together() {
        let removal = |kind, key: &str| Removal { kind, key: key.into(), gone: true };
        let mut two = Batch { removed: vec![removal(7, "a"), removal(8, "b")], ..Batch::default() };
        seal(&mut two);
        let one = Batch { removed: vec![removal(7, "a\u{1}\u{8}\0\0\0b")], ..two.clone() };
        assert!(is_whole(&two) && !is_whole(&one));
    }

    #[test]
    fn each_field_counts() {
        let mut sealed = Batch {
            lane: 1,
            from: 2,
            to: 3,
            root_after: vec![4; 16].into(),
            more: true,
            up: vec![Resource { version: vec![5; 16].into(), min_schema: 6, ..Resource::default() }],
            removed: vec![Removal { kind: 7, key: "a".into(), gone: true }],
            ..Batch::default()
        };
        assert!(!is_whole(&sealed));
        seal(&mut sealed);
        assert!(is_whole(&sealed));
        let changes: [fn(&mut Batch); 14] = [
            |it| it.lane = 2,
            |it| it.from = 0,
            |it| it.to = 4,
            |it| it.root_after = vec![4; 15].into(),
            |it| it.more = false,
            |it| it.up.clear(),
            |it| it.up[0].version = vec![6; 16].into(),
            |it| it.up[0].min_schema = 0,
            |it| it.removed.clear(),
            |it| it.removed[0].kind = 8,
            |it| it.removed[0].key = "b".into(),
            |it| it.removed[0].gone = false,
            |it| it.check = bytes::Bytes::new(),
            |it| it.base = vec![4; 16].into(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = sealed.clone();
            change(&mut other);
            assert!(!is_whole(&other), "change {number}");
        }
    }
}
