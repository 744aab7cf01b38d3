//! Counts what an update costs a control plane: blocks and bytes allocated from the line of a watch to the commit, and
//! for each proxy from the commit to its acknowledgement. The real watches, pipeline, store and sessions, without I/O.
//!
//! The counts may not exceed those of `limits.txt`. A change that saves some lowers them there, so that nobody takes
//! them back unnoticed; `UPDATE_COSTS=1` writes what was counted:
//!
//! ```text
//! UPDATE_COSTS=1 cargo test --workspace --test costs
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "of the proxy's tests, which need more of it")]
#[path = "../../../data-plane/tests/costs/counted.rs"]
mod counted;
mod limits;
mod plane;

use limits::Cost;
use plane::{Plane, ingress, slice};

use control_plane::objects::ObjectKind;

/// Services with an EndpointSlice of ten addresses and an Ingress each: an update costs what it touches, not what there
/// is.
const SERVICES: usize = 300;
/// Proxies that follow; the cost of each is their mean.
const PROXIES: usize = 4;
/// Updates before counting starts.
const WARM: usize = 20;
/// Updates that are counted together.
const UPDATES: usize = 100;

#[test]
fn an_update_costs_no_more_than_it_did() {
    let mut plane = Plane::start(SERVICES, PROXIES);
    let mut counts = Vec::new();
    for (names, kind) in [
        (["endpoints", "endpoints-proxy"], ObjectKind::EndpointSlice),
        (["ingress", "ingress-proxy"], ObjectKind::Ingress),
    ] {
        let [mut update, mut proxy] = [Cost::default(), Cost::default()];
        for number in 0..WARM + UPDATES {
            let service = number * 7 % SERVICES;
            let object = match kind {
                ObjectKind::Ingress => ingress(service, number + 100),
                _ => slice(service, number + 100),
            };
            let [compiled, sent] = plane.update(kind, object);
            if number >= WARM {
                update.add(compiled);
                proxy.add(sent);
            }
        }
        counts.push((names[0], update.each(UPDATES)));
        counts.push((names[1], proxy.each(UPDATES * PROXIES)));
    }
    limits::compare(&counts);
}
