//! For `fuzz`: arbitrary bytes as a journal.

use prost::Message as _;
use shared::kind::Lane;
use shared::version::Root;

use super::frame::{self, Chain};
use super::record::{self, Header};
use super::replay::{MAGIC, replay};

/// The end position of the newest state, and the roots of its lanes.
pub(crate) fn newest(bytes: &[u8]) -> Option<(usize, [Root; 2])> {
    let replayed = replay(bytes).ok()?;
    let roots = Lane::ALL.map(|lane| replayed.state.lane(lane).has.root());
    Some((usize::try_from(replayed.good).ok()?, roots))
}

/// The newest state as a journal of its own.
pub(crate) fn rewritten(bytes: &[u8]) -> Option<Vec<u8>> {
    let replayed = replay(bytes).ok()?;
    let mut again = frame::preamble(MAGIC).to_vec();
    let mut chain = Chain::new(MAGIC);
    chain.seal(&Header::of(&replayed.state.binding).encode_to_vec(), &mut again);
    for change in record::step(None, &replayed.state, replayed.written) {
        chain.seal(&change.encode_to_vec(), &mut again);
    }
    Some(again)
}
