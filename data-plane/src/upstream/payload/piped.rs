//! The rest of a body of ordinary size that arrives fast: it is kept in a pipe, and never copied to user space if its
//! endpoint speaks plain HTTP/1.1.

use std::future::poll_fn;
use std::time::Duration;

use super::{Memory, ORDINARY, Reading};
use crate::codec::body::{Pieces, RequestBody};
use crate::codec::error::{Kind, ProxyError};
use crate::local::Local;
use crate::local::pipes::bodies::{Added, BodyPipe};
use crate::local::timer::Timer;

/// Minimum length in bytes of what is kept in a pipe.
const LEAST: u64 = 128 * 1024;

/// How long a pipe waits for its client. A slow one needs none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the rest of a body is worth a pipe.
pub(super) fn is_worth<B: RequestBody>(body: &mut B) -> bool {
    body.passable().is_some_and(|(_, left)| (LEAST..=ORDINARY as u64).contains(&left))
}

/// A pipe for the rest of a body of which this much was read, if there is room for one.
pub(super) fn begin(memory: &mut Memory, read: u64, local: &Local) -> Option<Box<BodyPipe>> {
    // What is in a pipe may occupy more than its length: each of its slots holds a whole page.
    let pipe = if memory.holds(ORDINARY as u64, &local.spill) { local.body_pipes.make() } else { None };
    if pipe.is_none() {
        memory.shrink(read);
    }
    pipe
}

/// Moves the rest of a body into a pipe, or as much of it as can be had; returns whether that is all.
///
/// # Errors
/// As for a body that is read.
pub(super) async fn fill<B: RequestBody>(
    pipe: &mut BodyPipe,
    body: &mut B,
    reading: &mut Reading,
    local: &Local,
    timer: &Timer,
) -> Result<bool, ProxyError> {
    while let Some((socket, left)) = body.passable() {
        if left == 0 {
            return Ok(true);
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let adding = poll_fn(|cx| pipe.poll_add(socket, most, cx));
        let patience = PATIENCE.min(reading.pause);
        let Ok(added) = timer.limit(patience, adding).await else {
            reading.waited = patience;
            break;
        };
        match added.map_err(|error| ProxyError::of(Kind::ClientGone, error))? {
            Added::Bytes(0) => return Err(Kind::ClientGone.into()),
            Added::Bytes(count) => {
                body.passed(count);
                reading.arrived(count, local)?;
            }
            Added::Nothing => break,
            Added::Unable => {
                local.body_pipes.give_up();
                break;
            }
        }
    }
    Ok(false)
}

/// Reads what is in a pipe.
///
/// # Errors
/// The kernel's.
pub(super) fn empty(mut pipe: BodyPipe, pieces: &mut Pieces) -> Result<(), ProxyError> {
    while let Some(piece) = pipe.read().map_err(|error| ProxyError::of(Kind::NoRoom, error))? {
        pieces.push(piece);
    }
    Ok(())
}
