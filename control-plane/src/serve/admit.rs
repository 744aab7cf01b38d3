//! From the door to a server: a connection is handed on when its handshake is over.
//!
//! **Invariant:** where there is an authority nobody is handed on who has made no handshake.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shared::clock;
use shared::telemetry::Seldom;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tracing::warn;

use super::door::{self, Door, Line, Wants};
use super::leave;
use crate::enrol::Registrar;

/// Warnings about handshakes are at least so far apart.
const WARNINGS: Duration = Duration::from_secs(1);

/// Lets connections in until it is time to leave. Without a registrar there is no encryption.
pub(super) async fn admit(
    door: Door,
    listener: TcpListener,
    registrar: Option<Registrar>,
    calls: mpsc::Sender<Line>,
    enrolments: mpsc::Sender<Line>,
    leaving: watch::Receiver<bool>,
) {
    let mut guests = pin!(door.guests(listener));
    let mut leaving = pin!(leave(leaving));
    // Each by itself: none waits for another that is slow. There are as many as there are places at the door.
    let mut handshakes = JoinSet::new();
    let warning = Arc::new(Mutex::new(Seldom::new(WARNINGS)));
    let mut current = registrar.as_ref().map(Registrar::current);
    if let Some(current) = &mut current {
        // Whoever comes before there is an authority waits in the backlog; until then this process is not ready.
        tokio::select! {
            _ = current.wait_for(Result::is_ok) => {}
            () = &mut leaving => return,
        }
    }
    loop {
        let guest = tokio::select! {
            guest = guests.next() => match guest {
                Some(Ok(guest)) => guest,
                Some(Err(never)) => match never {},
                None => return,
            },
            Some(_) = handshakes.join_next() => continue,
            () = &mut leaving => return,
        };
        let (Some(registrar), Some(current)) = (&registrar, &current) else {
            // The server is gone only with this process.
            let _ = calls.send(Line::plain(guest)).await;
            continue;
        };
        let Ok(current) = current.borrow().clone() else { continue };
        let (calls, enrolments, warning) = (calls.clone(), enrolments.clone(), Arc::clone(&warning));
        let registrar = registrar.clone();
        handshakes.spawn(async move {
            let address = guest.caller(None).address();
            match door::secure(guest, &current, registrar.group()).await {
                Ok(Wants::Calls(line)) => _ = calls.send(line).await,
                Ok(Wants::Enrolment(line)) => _ = enrolments.send(line).await,
                Err(error) => {
                    let mut warning = warning.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(before) = warning.now(clock::now()) {
                        warn!(%address, before, "a handshake failed: {error}");
                    }
                }
            }
        });
    }
}
