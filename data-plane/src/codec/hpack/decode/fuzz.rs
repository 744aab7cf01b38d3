//! Compares the decoder with a slow one.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::*;
use crate::codec::hpack::block::ENTRY;
use crate::codec::hpack::fixed::COUNT;
use crate::codec::hpack::model::{Field, Model};

/// Pseudo-header fields with their names.
const PSEUDO: [(Pseudo, &[u8]); 6] = [
    (Pseudo::Method, b":method"),
    (Pseudo::Scheme, b":scheme"),
    (Pseudo::Authority, b":authority"),
    (Pseudo::Path, b":path"),
    (Pseudo::Protocol, b":protocol"),
    (Pseudo::Status, b":status"),
];

/// A decoder that is compared with a slow one, block by block.
pub(super) struct Compared {
    decoder: Decoder,
    model: Model,
    block: FieldBlock,
}

impl Compared {
    pub(super) fn new() -> Self {
        Self { decoder: Decoder::new(), model: Model::new(), block: FieldBlock::default() }
    }

    /// Decodes a block. Returns what was decoded, unless it is broken.
    pub(super) fn decode(&mut self, bytes: &[u8], most: usize) -> Option<&FieldBlock> {
        self.block.clear();
        let outcome = self.decoder.decode(bytes, most, &mut self.block);
        let truth = self.model.read(bytes);
        assert_eq!(outcome.is_ok(), truth.is_some(), "{}", bytes.escape_ascii());
        self.is_fresh(&truth?, most);
        let table = &self.decoder.table;
        assert_eq!(table.sizes(), self.model.sizes());
        for index in 0..=COUNT + table.sizes().len() + 1 {
            let entry = table.get(index).map(|entry| entry.text.split_at(entry.name));
            let entry = entry.map(|(name, value)| (name.to_vec(), value.to_vec()));
            assert_eq!(entry, self.model.entry(index), "{index}");
        }
        assert!(table.memory() <= MOST + MOST / ENTRY * 10, "{}", table.memory());
        assert!(self.block.text.capacity() <= 2 * (most + MOST + huffman::BEHIND));
        Some(&self.block)
    }

    /// The memory of the decoder's table.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.decoder.table.memory()
    }

    /// Compares the block with the fields that it has.
    fn is_fresh(&self, truth: &[Field], most: usize) {
        let (mut size, mut is_malformed, mut fields) = (0, false, Vec::new());
        let (mut pseudo, mut has_others) = (HashMap::new(), false);
        for (name, value) in truth {
            size += name.len() + value.len() + ENTRY;
            let known = PSEUDO.into_iter().find(|(_, known)| known == name).map(|(which, _)| which);
            let mut is_bad = !is_good(name, value);
            match known {
                Some(which) => {
                    is_bad |= has_others || pseudo.contains_key(&(which as u8));
                    let value = (!is_bad && size <= most).then_some(&value[..]);
                    pseudo.entry(which as u8).or_insert(value);
                }
                None => {
                    has_others = true;
                    if !is_bad && size <= most {
                        fields.push((Known::of(name), &name[..], &value[..]));
                    }
                }
            }
            is_malformed |= is_bad;
        }
        let block = &self.block;
        assert_eq!((block.size(), block.is_over()), (size as u64, size > most), "{truth:?}");
        // Nobody asks this of a field that has no room.
        if size <= most {
            assert_eq!(block.is_malformed(), is_malformed, "{truth:?}");
            assert_eq!(block.has_pseudo(), !pseudo.is_empty(), "{truth:?}");
            let status = pseudo.get(&(Pseudo::Status as u8));
            assert_eq!(block.is_no_request(), is_malformed || status.is_some(), "{truth:?}");
            let status = status.filter(|_| !is_malformed && pseudo.len() == 1).copied().flatten();
            let text = |status: u16| status.to_string().into_bytes();
            assert_eq!(block.status().map(text).as_deref(), status, "{truth:?}");
        }
        assert_eq!(block.fields().collect::<Vec<_>>(), fields);
        for (which, _) in PSEUDO {
            assert_eq!(block.pseudo(which), pseudo.get(&(which as u8)).copied().flatten(), "{which:?}");
        }
        assert!(block.text.len() <= most);
    }
}

/// Whether a message may have such a field, according to the types that h2 parses them into.
fn is_good(name: &[u8], value: &[u8]) -> bool {
    match name {
        b":method" => Method::from_bytes(value).is_ok(),
        b":scheme" => !value.is_empty() && Scheme::try_from(value).is_ok(),
        b":authority" => Authority::try_from(value).is_ok(),
        b":path" => !value.is_empty(),
        b":protocol" => std::str::from_utf8(value).is_ok(),
        b":status" => StatusCode::from_bytes(value).is_ok(),
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => false,
        b"te" => value == b"trailers",
        _ => HeaderName::from_lowercase(name).is_ok() && HeaderValue::from_bytes(value).is_ok(),
    }
}

/// Blocks, each behind its length in two octets, and before all of them the largest list in multiples of 64 bytes.
pub fn blocks(data: &[u8]) {
    let Some((most, mut rest)) = data.split_first() else { return };
    let mut compared = Compared::new();
    while let [high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (block, behind) = behind.split_at(length.min(behind.len()));
        if compared.decode(block, 64 * usize::from(*most)).is_none() {
            return;
        }
        rest = behind;
    }
}
