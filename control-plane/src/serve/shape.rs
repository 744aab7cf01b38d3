//! Counts the parts of a message before it is decoded: an empty part is two bytes on the wire and more than a hundred
//! in memory.
//!
//! **Invariant:** what passes decodes into at most a few times its own size.

use thiserror::Error;

use super::message::REFUSALS_MAX;

/// A repeated field, or one that contains such fields.
struct Part {
    field: u64,
    name: &'static str,
    /// Limit of its occurrences.
    most: usize,
    inner: &'static [Self],
}

const fn part(field: u64, name: &'static str, most: usize, inner: &'static [Part]) -> Part {
    Part { field, name, most, inner }
}

/// Limit of the capabilities of a Hello.
const CAPABILITIES: usize = 64;
/// Limit of the lanes of a Hello, some of which may be of a later protocol.
const LANES: usize = 8;
/// Limit of the entries of an inventory.
const ENTRIES: usize = 4_096;

/// Fields of `ProxyMessage` by number (`proto/firth/config/v1/stream.proto`; a test checks them against the
/// descriptors).
const MESSAGE: &[Part] = &[
    part(1, "hello", 1, HELLO),
    part(2, "ack", 1, ACK),
    part(3, "inventory", 1, INVENTORY),
    part(4, "status", 1, &[]),
    part(5, "goodbye", 1, &[]),
    part(6, "receiving", 1, &[]),
];
const HELLO: &[Part] = &[part(6, "capabilities", CAPABILITIES, &[]), part(7, "resume", LANES, RESUME)];
const RESUME: &[Part] = &[part(5, "refused", REFUSALS_MAX, &[])];
const ACK: &[Part] = &[part(6, "refused", REFUSALS_MAX, &[])];
const INVENTORY: &[Part] = &[part(3, "entries", ENTRIES, &[])];

/// A part occurs too often.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name}: expected at most {most}, got more")]
pub(super) struct TooMany {
    name: &'static str,
    most: usize,
}

/// Counts the parts. Invalid messages are left to the decoder.
pub(super) fn check(message: &[u8]) -> Result<(), TooMany> {
    count(message, MESSAGE)
}

fn count(mut rest: &[u8], parts: &'static [Part]) -> Result<(), TooMany> {
    let mut counts = [0_usize; 8];
    while let Some((field, body)) = next(&mut rest) {
        let Some(place) = parts.iter().position(|part| part.field == field) else { continue };
        let Part { name, most, inner, .. } = &parts[place];
        counts[place] += 1;
        if counts[place] > *most {
            return Err(TooMany { name, most: *most });
        }
        if let Some(body) = body.filter(|_| !inner.is_empty()) {
            count(body, inner)?;
        }
    }
    Ok(())
}

/// The next field and its body, if it has one. `None`: no more, or unreadable.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let tag = varint(rest)?;
    let body = match tag & 7 {
        0 => {
            varint(rest)?;
            None
        }
        1 => {
            *rest = rest.get(8..)?;
            None
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (body, after) = rest.split_at_checked(length)?;
            *rest = after;
            Some(body)
        }
        5 => {
            *rest = rest.get(4..)?;
            None
        }
        _ => return None,
    };
    Some((tag >> 3, body))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use prost_reflect::DescriptorPool;
    use shared::proto::DESCRIPTORS;
    use shared::proto::config::proxy_message::Message;
    use shared::proto::config::{Ack, Hello, ProxyMessage, Refusal, Resume};

    use super::*;

    fn encoded(message: Message) -> Vec<u8> {
        ProxyMessage { message: Some(message) }.encode_to_vec()
    }

    fn hello(resume: Vec<Resume>, capabilities: usize) -> Vec<u8> {
        let capabilities = vec![String::new(); capabilities];
        encoded(Message::Hello(Hello { resume, capabilities, ..Hello::default() }))
    }

    #[test]
    fn what_a_proxy_may_say_passes_and_one_more_does_not() {
        let resume = |refused| Resume { refused: vec![Refusal::default(); refused], ..Resume::default() };
        let ack = |refused| {
            encoded(Message::Ack(Ack { refused: vec![Refusal::default(); refused], ..Ack::default() }))
        };
        for good in [hello(vec![resume(256); 2], 64), hello(vec![resume(0); 8], 0), ack(256), Vec::new()] {
            assert_eq!(check(&good), Ok(()));
        }
        for (bad, name) in [
            (hello(vec![Resume::default(); 2_000_000], 0), "resume"),
            (hello(vec![resume(257)], 0), "refused"),
            (hello(Vec::new(), 65), "capabilities"),
            (ack(257), "refused"),
            ([ack(0), ack(0)].concat(), "ack"),
        ] {
            assert_eq!(check(&bad).unwrap_err().name, name);
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_contract() {
        fn compare(message: &prost_reflect::MessageDescriptor, parts: &[Part]) {
            for field in
                message.fields().filter(|field| field.is_list() || field.containing_oneof().is_some())
            {
                let part = parts.iter().find(|part| part.field == u64::from(field.number()));
                let part = part.unwrap_or_else(|| panic!("{} is not counted", field.full_name()));
                assert_eq!(part.name, field.name());
                if let Some(inner) = field.kind().as_message() {
                    compare(inner, part.inner);
                }
            }
        }
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        compare(&pool.get_message_by_name("firth.config.v1.ProxyMessage").unwrap(), MESSAGE);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_counted_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
        }
    }
}
