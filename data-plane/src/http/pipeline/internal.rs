//! nginx' internal redirects: a request that goes on as another one for a path of the same host, in place of an error
//! (`error_page` of a snippet).
//!
//! **Invariant:** all rules of the location of that path apply, as to any request for it.

use std::ops::ControlFlow;

use super::errors::{self, Challenges};
use super::{Exchange, phases};
use crate::codec::body::RequestBody;
use crate::http::reply::Reply;
use crate::table::policy::errors::Place;

/// What is served at a place, in place of an error. As in nginx (`recursive_error_pages off`), what goes wrong there has the
/// default page.
pub(super) async fn in_place<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    body: &mut B,
    place: &Place,
    error: Reply,
) -> Reply {
    let close = error.close;
    let first = Challenges::of(error);
    exchange.begin_again(place.path.to_vec(), place.query.to_vec());
    let (ControlFlow::Break(reply) | ControlFlow::Continue(reply)) = phases(exchange, body).await;
    let mut reply = match errors::is_second(exchange, &reply) {
        true => Reply::page(&exchange.call.server.local, reply.head.status),
        false => reply,
    };
    // Another error, or a redirect, has a status of its own.
    if let Some(status) = place.status.filter(|_| !(reply.is_usual() && reply.head.status >= 300)) {
        reply.head.restate(status);
    }
    reply.close |= close;
    first.put(&mut reply);
    reply
}
