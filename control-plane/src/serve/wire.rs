//! Converts between the messages of `firth.config.v1` and the types of a session. A proxy's input is untrusted until it
//! is checked here.

use std::time::Duration;

use shared::budget::Budget;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::proxy_message::Message as FromProxy;
use shared::schema;
use shared::version::{Claim, Lineage, Root, Seq, Source, Version};
use thiserror::Error;

use super::message::{
    Ack, Hello, Inventory, NAME_MAX, Position, ProxyMessage, REFUSALS_MAX, Refused, Resume, Start, TEXT_MAX,
    Welcome,
};
use super::refusals::Refusals;
use super::session::Out;
use crate::store::Frame;

/// The capability of a proxy that can report what it has.
const INVENTORY: &str = "inventory";

/// Why a message is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub(super) enum WireError {
    /// A name that is empty, too long, or not printable ASCII.
    #[error("{field}: expected 1 to {NAME_MAX} printable ASCII characters, got {length} bytes")]
    Name {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// A lane that does not exist.
    #[error("expected a lane, got {0}")]
    Lane(i32),
    /// A kind that no revision can have.
    #[error("expected a kind, got {0}")]
    Kind(i32),
    /// Not 16 bytes.
    #[error("{field}: expected 16 bytes or none, got {length}")]
    Sixteen {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
    },
}

/// Converts a proxy's message. Stored refusals are taken from `budget`.
///
/// # Errors
/// If it violates a rule of `stream.proto`.
pub(super) fn read(message: config::ProxyMessage, budget: &Budget) -> Result<ProxyMessage, WireError> {
    Ok(match message.message {
        Some(FromProxy::Hello(hello)) => ProxyMessage::Hello(read_hello(hello, budget)?),
        Some(FromProxy::Ack(ack)) => ProxyMessage::Ack(read_ack(ack, budget)?),
        Some(FromProxy::Inventory(inventory)) => ProxyMessage::Inventory(read_inventory(inventory)?),
        Some(FromProxy::Status(_)) => ProxyMessage::Status,
        Some(FromProxy::Goodbye(_)) => ProxyMessage::Goodbye,
        Some(FromProxy::Receiving(_)) => ProxyMessage::Receiving,
        None => ProxyMessage::Unknown,
    })
}

fn read_hello(hello: config::Hello, budget: &Budget) -> Result<Hello, WireError> {
    let mut read = Hello {
        id: name("proxy_id", &hello.proxy_id, 1)?.into(),
        node: name("node", &hello.node, 0)?.into(),
        zone: name("zone", &hello.zone, 0)?.into(),
        group: name("group", &hello.group, 0)?.to_owned(),
        config: Resume::default(),
        live: Resume::default(),
        inventory: hello.capabilities.iter().any(|ability| ability == INVENTORY),
        claim: sixteen("claim", &hello.claim)?.map(Claim),
        compiled: hello.compile_revision,
    };
    for resume in hello.resume {
        match Lane::from_wire(resume.lane).ok_or(WireError::Lane(resume.lane))? {
            Lane::Config => read.config = read_resume(resume, budget)?,
            Lane::Live => read.live = read_resume(resume, budget)?,
        }
    }
    Ok(read)
}

fn read_resume(resume: config::Resume, budget: &Budget) -> Result<Resume, WireError> {
    Ok(Resume {
        lineage: sixteen("lineage", &resume.lineage)?.map(Lineage),
        seq: Seq(resume.seq),
        root: sixteen("root", &resume.root)?.map(Root),
        whole: resume.whole,
        refused_total: refused_total(&resume.refused, resume.refused_total),
        refused: read_refused(resume.refused, budget),
    })
}

fn read_ack(ack: config::Ack, budget: &Budget) -> Result<Ack, WireError> {
    Ok(Ack {
        lane: Lane::from_wire(ack.lane).ok_or(WireError::Lane(ack.lane))?,
        seq: Seq(ack.seq),
        root: sixteen("root", &ack.root)?.map(Root),
        staged: ack.staged,
        apply: Duration::from_micros(ack.apply_us),
        refused_total: refused_total(&ack.refused, ack.refused_total),
        refused: read_refused(ack.refused, budget),
    })
}

/// Entries of unknown kinds are included: the proxy must drop them.
fn read_inventory(inventory: config::Inventory) -> Result<Inventory, WireError> {
    let (digests, rest) = inventory.digests.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(WireError::Sixteen { field: "digests", length: rest.len() });
    }
    let entry = |entry: config::InventoryEntry| {
        let length = entry.version.len();
        let version = Version::from_slice(&entry.version);
        let version = version.ok_or(WireError::Sixteen { field: "version", length })?;
        let kind = Kind::any_from_wire(entry.kind).ok_or(WireError::Kind(entry.kind))?;
        Ok((ResourceKey::new(kind, entry.key), version))
    };
    Ok(Inventory {
        lane: Lane::from_wire(inventory.lane).ok_or(WireError::Lane(inventory.lane))?,
        digests: digests.to_vec(),
        entries: inventory.entries.into_iter().map(entry).collect::<Result<_, _>>()?,
        cut: inventory.cut,
    })
}

/// The number of refusals: the reported number, but not less than those that are listed.
fn refused_total(refused: &[config::Refusal], total: u32) -> u32 {
    total.max(refused.len().min(REFUSALS_MAX) as u32)
}

/// Refusals of unknown kinds are left out: this build cannot have sent them.
fn read_refused(refused: Vec<config::Refusal>, budget: &Budget) -> Refusals {
    let read = refused.into_iter().take(REFUSALS_MAX).filter_map(|refusal| {
        Some(Refused {
            kind: Kind::from_wire(refusal.kind)?,
            version: Version::from_slice(&refusal.version)?,
            code: code(refusal.code),
            key: cut(&refusal.key),
            reason: cut(&refusal.reason),
            serving_last_good: refusal.serving_last_good,
        })
    });
    Refusals::keep(read, budget)
}

fn code(code: i32) -> &'static str {
    use config::refusal::Code;
    match Code::try_from(code).unwrap_or_default() {
        Code::Unspecified => "unknown",
        Code::Invalid => "invalid",
        Code::UnknownKind => "unknown-kind",
        Code::Schema => "schema",
        Code::Corrupt => "corrupt",
        Code::Limit => "limit",
    }
}

/// At most 1 KiB, without characters that could forge a log line or control a terminal.
fn cut(text: &str) -> Box<str> {
    let mut kept = String::new();
    for character in text.chars() {
        let character = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
        if kept.len() + character.len_utf8() > TEXT_MAX {
            break;
        }
        kept.push(character);
    }
    kept.into()
}

fn name<'a>(field: &'static str, text: &'a str, least: usize) -> Result<&'a str, WireError> {
    let fits = (least..=NAME_MAX).contains(&text.len());
    if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        let length = text.len();
        Err(WireError::Name { field, length })
    }
}

fn sixteen(field: &'static str, bytes: &[u8]) -> Result<Option<[u8; 16]>, WireError> {
    match bytes.len() {
        0 => Ok(None),
        length => bytes.try_into().map(Some).map_err(|_| WireError::Sixteen { field, length }),
    }
}

/// Encodes a message.
pub(super) fn encode(out: Out) -> Frame {
    Frame::encode(match out {
        Out::Chunk { frame, .. } => return frame,
        Out::Welcome(welcome) => Control::Welcome(welcome_to_wire(&welcome)),
        Out::Heartbeat(positions) => Control::Heartbeat(config::Heartbeat {
            lanes: positions.into_iter().map(position_to_wire).collect(),
        }),
        Out::Ask { lane, buckets } => Control::InventoryRequest(config::InventoryRequest {
            lane: lane.to_wire(),
            buckets: buckets.into_iter().map(u32::from).collect(),
        }),
        Out::Redirect(after) => Control::Redirect(config::Redirect {
            after_ms: after.as_millis() as u32,
            reason: "this control plane ends, or is cut off".to_owned(),
        }),
    })
}

fn welcome_to_wire(welcome: &Welcome) -> config::Welcome {
    use config::lane_start::Mode;
    let lane = |(lane, start, seq): &(Lane, Start, Seq)| config::LaneStart {
        lane: lane.to_wire(),
        mode: match start {
            Start::InSync => Mode::InSync,
            Start::Cursor => Mode::Cursor,
            Start::Inventory => Mode::Inventory,
            Start::Full => Mode::Full,
            Start::Wait => Mode::Wait,
        }
        .into(),
        seq: seq.0,
    };
    config::Welcome {
        lineage: welcome.lineage.to_bytes(),
        schema: schema::CURRENT,
        heartbeat_ms: welcome.heartbeat.as_millis() as u32,
        // Counters are not read yet.
        status_interval_ms: 0,
        lanes: welcome.lanes.iter().map(lane).collect(),
        claim: welcome.claim.to_bytes(),
        pinned_until: welcome.pinned_until,
        source: welcome.source.map(Source::to_bytes).unwrap_or_default(),
        compile_revision: welcome.compiled,
    }
}

fn position_to_wire(position: Position) -> config::LanePosition {
    config::LanePosition {
        lane: position.lane.to_wire(),
        seq: position.seq.0,
        root: position.root.to_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(id: &str) -> config::ProxyMessage {
        config::ProxyMessage {
            message: Some(FromProxy::Hello(config::Hello {
                proxy_id: id.to_owned(),
                ..config::Hello::default()
            })),
        }
    }

    fn room() -> Budget {
        Budget::new(1 << 20)
    }

    #[test]
    fn names_are_bounded_and_printable() {
        for good in ["a-0123", &"x".repeat(NAME_MAX)] {
            assert!(matches!(read(hello(good), &room()), Ok(ProxyMessage::Hello(_))));
        }
        for bad in ["", "a b", "a\nb", "\u{1b}[31m", &"x".repeat(NAME_MAX + 1)] {
            let error = read(hello(bad), &room()).unwrap_err();
            assert!(matches!(error, WireError::Name { field: "proxy_id", .. }), "{bad:?}");
        }
    }

    #[test]
    fn refusals_and_reasons_are_cut() {
        let refusal = config::Refusal {
            kind: Kind::Route.to_wire(),
            version: vec![1; 16].into(),
            reason: "ä\n".repeat(2_000),
            ..config::Refusal::default()
        };
        let ack = config::Ack {
            lane: Lane::Config.to_wire(),
            root: vec![2; 16].into(),
            refused: vec![refusal; 1_000],
            refused_total: 1_000,
            ..config::Ack::default()
        };
        let ack = read_ack(ack, &room()).unwrap();
        assert_eq!(ack.refused_total, 1_000);
        assert!((20..REFUSALS_MAX).contains(&ack.refused.len()), "what fits into a lane's share");
        assert!(ack.refused.iter().all(|refused| refused.reason.len() <= TEXT_MAX), "also after replacing");
        assert!(!ack.refused[0].reason.contains('\n'));
    }

    #[test]
    fn as_much_is_refused_as_is_listed_at_least() {
        for (listed, total, expected) in
            [(0, 0, 0), (3, 0, 3), (3, 2, 3), (3, 4, 4), (1_000, 0, REFUSALS_MAX as u32), (0, 7, 7)]
        {
            let refused = vec![config::Refusal::default(); listed];
            assert_eq!(refused_total(&refused, total), expected, "{listed} {total}");
        }
    }

    #[test]
    fn digests_are_sixteen_bytes() {
        let ack =
            config::Ack { lane: Lane::Live.to_wire(), root: vec![2; 15].into(), ..config::Ack::default() };
        let expected = WireError::Sixteen { field: "root", length: 15 };
        assert_eq!(read_ack(ack, &room()).unwrap_err(), expected);
        let lane = config::Ack::default();
        assert_eq!(read_ack(lane, &room()).unwrap_err(), WireError::Lane(0));
    }
}
