//! A pin's times are those of the API server's clock: a replica whose own clock is wrong neither shortens a pin nor ends
//! one early.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use shared::clock;

use super::super::ask::AskError;
use super::super::server_clock;
use crate::pin::Pin;

/// A difference between the two clocks that is ignored: dates have no fractions of a second, and a response takes time.
pub(super) const APART: Duration = Duration::from_secs(30);

/// A pin that lasts no longer than this has expired: dates have no fractions of a second. With more, a short pin would be
/// ended by any replica whose clock is ahead, as soon as it is made.
const SHORT: Duration = Duration::from_secs(1);

/// A new pin, dated by the API server. By a clock that is late it could be over before it is stored.
pub(super) async fn dated(client: &Client, pin: &Arc<Pin>) -> Arc<Pin> {
    // A decision does not depend on this; if there is no response, writing fails as well, and says so.
    let Ok(Some(now)) = server_clock::read(client).await else {
        return Arc::clone(pin);
    };
    let now = clock::unix(now);
    let apart = now.abs_diff(pin.at);
    if apart <= APART.as_secs() {
        return Arc::clone(pin);
    }
    let way = if now < pin.at { "ahead of" } else { "behind" };
    tracing::warn!(seconds = apart, "the clock here is {way} that of the API server, which dates the pin");
    let until = now.saturating_add(pin.until.saturating_sub(pin.at));
    Arc::new(Pin { at: now, until, ..Pin::clone(pin) })
}

/// How long a pin that has expired here still lasts by the API server's clock; `None`: it has expired there as well, or
/// that clock is unknown.
///
/// # Errors
/// If there is no response.
pub(super) async fn left(client: &Client, pin: &Pin) -> Result<Option<Duration>, AskError> {
    let Some(now) = server_clock::read(client).await? else {
        return Ok(None);
    };
    let left = pin.until().duration_since(now).unwrap_or_default();
    Ok((left > SHORT).then_some(left))
}
