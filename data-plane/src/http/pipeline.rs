//! The way of one request, top to bottom: what ingress-nginx does, in its order (annotations.md 4).
//!
//! The guard is behind us: a head that gets here passed it. Everything until a backend is chosen is synchronous and
//! sees one table; after that nothing looks at a table again.

use std::rc::Rc;

use super::account::Tally;
use super::forwarded;
use super::peer::Peer;
use super::reply::Reply;
use crate::codec::body::RequestBody;
use crate::codec::head::RequestHead;
use crate::codec::path;
use crate::http::server::Server;
use crate::local::timer::Timer;
use crate::table::Timeouts;
use decide::Decision;

mod decide;
mod forward;

/// Where a request came from, and what it may use.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Rc<Server>,
    pub(crate) timer: &'a Timer,
    pub(crate) peer: &'a Peer,
    pub(crate) timeouts: Timeouts,
}

/// Answers a request.
pub(crate) async fn serve<B: RequestBody>(
    call: Call<'_>,
    head: &mut RequestHead,
    body: &mut B,
    tally: &mut Tally,
) -> Reply {
    let Call { server, peer, .. } = call;

    // Once, before routing: every later step goes by this path.
    let Ok(normal) = path::normalise(head.path()) else {
        server.local.metrics.refusals.add(1);
        return Reply::refusal(&server.local, 400);
    };
    // Host, path, redirects, canary: from one table, in one go.
    let chosen =
        match server.with_table(|table| decide::decide(table, &server.local, peer, head, &normal, tally)) {
            Decision::Proxy(chosen) => chosen,
            Decision::Answer(status) => return Reply::page(&server.local, status),
            Decision::Refuse => {
                server.local.metrics.refusals.add(1);
                return Reply::refusal(&server.local, 400);
            }
            Decision::Redirect(status, location) => return Reply::redirect(&server.local, status, location),
            Decision::Healthy => return Reply::healthy(&server.local),
        };
    tally.id = forwarded::apply(head, peer);
    forward::forward(call, head, body, tally, chosen).await
}
