//! One line that says how far it is, where somebody looks at it.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_tests::load::world::World;

/// Between two lines.
const PACE: Duration = Duration::from_millis(500);

/// Tells how far the fleet is that there is, for ever. A terminal shows it in place; a log gets a line every ten seconds.
pub(crate) async fn show(now: impl Fn() -> Option<Arc<World>>, proxies: usize) -> std::convert::Infallible {
    let (begun, is_terminal) = (Instant::now(), stderr().is_terminal());
    let mut tick = tokio::time::interval(if is_terminal { PACE } else { 20 * PACE });
    tick.tick().await;
    loop {
        tick.tick().await;
        let Some(world) = now() else { continue };
        let line = {
            let board = world.board();
            let ends: u64 = board.ends.values().sum();
            format!(
                "{:>4} s: {} of {proxies} connected, {} in sync, {} batches, {} edits under way, {ends} streams lost",
                begun.elapsed().as_secs(),
                board.connected,
                board.in_sync,
                board.batches,
                board.edits.open(),
            )
        };
        // Who closes standard error does not want to know.
        let _ = match is_terminal {
            true => write!(stderr(), "\r\x1b[K{line}"),
            false => writeln!(stderr(), "{line}"),
        };
    }
}

/// Leaves the line behind.
pub(crate) fn over() {
    if stderr().is_terminal() {
        let _ = writeln!(stderr());
    }
}
