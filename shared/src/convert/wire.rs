//! Conversion of lanes, kinds, entries and removals to and from the wire: everything about a resource except its body.

use crate::delta::Removal;
use crate::entry::Entry;
use crate::kind::{Kind, Lane};
use crate::proto::config;

impl Lane {
    /// From the wire.
    pub fn from_wire(lane: i32) -> Option<Self> {
        match config::Lane::try_from(lane).ok()? {
            config::Lane::Unspecified => None,
            config::Lane::Config => Some(Self::Config),
            config::Lane::Live => Some(Self::Live),
        }
    }

    /// For the wire.
    pub fn to_wire(self) -> i32 {
        match self {
            Self::Config => config::Lane::Config.into(),
            Self::Live => config::Lane::Live.into(),
        }
    }
}

impl Kind {
    /// From the wire; `None` for a kind of a later schema.
    pub fn from_wire(kind: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.to_wire() == kind)
    }

    /// From the wire, including kinds of a later schema; `None` for invalid numbers.
    pub fn any_from_wire(kind: i32) -> Option<Self> {
        let number = u8::try_from(kind).ok().filter(|number| *number > 0)?;
        Some(Self::from_wire(kind).unwrap_or(Self::Later(number)))
    }

    /// For the wire.
    pub fn to_wire(self) -> i32 {
        self.number().into()
    }
}

impl Entry {
    /// For the wire.
    pub fn to_wire(&self) -> config::Resource {
        config::Resource {
            kind: self.key.kind.to_wire(),
            key: self.key.key.to_string(),
            version: self.version.to_bytes(),
            min_schema: self.min_schema,
            body: self.body.clone(),
        }
    }
}

impl Removal {
    /// For the wire.
    pub fn to_wire(&self) -> config::Removal {
        config::Removal { kind: self.key.kind.to_wire(), key: self.key.key.to_string(), gone: self.gone }
    }
}
