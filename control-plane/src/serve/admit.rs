//! Between admission and the servers: a connection is passed on once its handshake is complete.
//!
//! **Invariant:** if there is an authority, no connection is passed on without a handshake.

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

use super::admission::{self, Admission, Line, Wants};
use super::leave;
use crate::enrol::Registrar;

/// Minimum interval of warnings about handshakes.
const WARNINGS: Duration = Duration::from_secs(1);

/// Admits connections until shutdown. Without a registrar there is no encryption.
pub(super) async fn admit(
    admission: Admission,
    listener: TcpListener,
    registrar: Option<Registrar>,
    calls: mpsc::Sender<Line>,
    enrolments: mpsc::Sender<Line>,
    leaving: watch::Receiver<bool>,
) {
    let mut guests = pin!(admission.guests(listener));
    let mut leaving = pin!(leave(leaving));
    // Concurrent, so that a slow one delays no other. Their number is limited by admission.
    let mut handshakes = JoinSet::new();
    let warning = Arc::new(Mutex::new(Seldom::new(WARNINGS)));
    let mut current = registrar.as_ref().map(Registrar::current);
    if let Some(current) = &mut current {
        // Without an authority, connections wait in the backlog; until then this process is not ready.
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
            // The server ends only with the process.
            let _ = calls.send(Line::plain(guest)).await;
            continue;
        };
        let Ok(current) = current.borrow().clone() else { continue };
        let (calls, enrolments, warning) = (calls.clone(), enrolments.clone(), Arc::clone(&warning));
        let registrar = registrar.clone();
        handshakes.spawn(async move {
            let address = guest.caller(None).address();
            match admission::secure(guest, &current, registrar.group()).await {
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
