//! Converts between the types of the session and the messages of `firth.config.v1`.

use std::time::Duration;

use shared::kind::Lane;
use shared::proto::config;
use shared::proto::config::proxy_message::Message as FromProxy;
use shared::version::{Root, Seq};

use super::{Close, Holdings, protocol};
use crate::table::apply::Code;

/// Maximum number of refusals that are listed; beyond that the state of each object is unknown.
const REFUSALS: usize = 256;
/// Maximum length of a refusal's reason in bytes.
const REASON: usize = 1024;
/// Maximum bytes of refusals of one lane in a reply. A control plane stores 32 KiB, and accepts messages of 256 KiB.
const ACK_TEXT: usize = 64 * 1024;
/// The same for a Hello, which may have 64 KiB in total.
pub(super) const HELLO_TEXT: usize = 24 * 1024;

pub(super) fn message(message: FromProxy) -> config::ProxyMessage {
    config::ProxyMessage { message: Some(message) }
}

pub(super) fn lane(lane: i32) -> Result<Lane, Close> {
    Lane::from_wire(lane).ok_or_else(|| protocol(format!("expected a lane, got {lane}")))
}

pub(super) fn root(root: &[u8]) -> Result<Root, Close> {
    Root::from_slice(root).ok_or_else(|| protocol(format!("expected a root of 16 bytes, got {}", root.len())))
}

/// The position on a lane, and what cannot be served there.
pub(super) fn ack(
    lane: Lane,
    seq: Seq,
    staged: u32,
    took: Duration,
    corrupt: &[config::Refusal],
    writer: &impl Holdings,
) -> config::ProxyMessage {
    let (refused, refused_total) = refusals(writer, lane, corrupt, ACK_TEXT);
    message(FromProxy::Ack(config::Ack {
        lane: lane.to_wire(),
        seq: seq.0,
        root: writer.root(lane).to_bytes(),
        staged,
        apply_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        refused,
        refused_total,
    }))
}

/// The resources of a lane that cannot be served, by kind and key, and their total number. Corrupt ones come first. At
/// most `most` bytes of them are listed.
pub(super) fn refusals(
    writer: &impl Holdings,
    lane: Lane,
    corrupt: &[config::Refusal],
    most: usize,
) -> (Vec<config::Refusal>, u32) {
    let mut size = 0;
    let mut fits = |refusal: &config::Refusal| {
        // Including tags, lengths, version and code.
        size += refusal.key.len() + refusal.reason.len() + 48;
        size <= most
    };
    let mut told: Vec<_> = corrupt.iter().take(REFUSALS).take_while(|it| fits(it)).cloned().collect();
    let mut total = corrupt.len();
    for (key, refused) in writer.refused(lane) {
        total += 1;
        if told.len() >= REFUSALS {
            continue;
        }
        let refusal = config::Refusal {
            kind: key.kind.to_wire(),
            key: key.key.to_string(),
            version: refused.version.to_bytes(),
            code: code(refused.code),
            reason: cut(&refused.reason),
            serving_last_good: refused.serving_last_good,
        };
        if fits(&refusal) {
            told.push(refusal);
        }
    }
    (told, u32::try_from(total).unwrap_or(u32::MAX))
}

/// The refusal of a resource that the proxy does not even store.
pub(super) fn refusal_of(resource: &config::Resource, why: Code, reason: &str) -> config::Refusal {
    config::Refusal {
        kind: resource.kind,
        key: resource.key.clone(),
        version: resource.version.clone(),
        code: code(why),
        reason: cut(reason),
        serving_last_good: false,
    }
}

fn code(code: Code) -> i32 {
    match code {
        Code::Invalid => config::refusal::Code::Invalid,
        Code::UnknownKind => config::refusal::Code::UnknownKind,
        Code::Schema => config::refusal::Code::Schema,
        Code::Corrupt => config::refusal::Code::Corrupt,
    }
    .into()
}

fn cut(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON)].to_owned()
}
