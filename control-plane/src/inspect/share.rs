//! What this replica itself knows about proxies: its share of the fleet-wide answer, also given to the other replicas.
//!
//! **Invariant:** it never asks another replica for that.

use std::time::Instant;

use shared::proto::inspect;
use shared::schema::COMPILE_REVISION;
use tonic::Status;

use super::status::is_rejected;
use super::{Inspect, convert, pick};
use crate::freshness::{Failing, ReadTo, Unheard};
use crate::objects::ObjectRef;
use crate::peers::apart;
use crate::peers::fleet::{About, Fleet};
use crate::placement::Placement;
use crate::rollout::{Extent, ObjectState};
use crate::store::Head;

/// Names of an object's states on a proxy.
pub(super) mod words {
    pub(in crate::inspect) const PROGRAMMED: &str = "programmed";
    pub(in crate::inspect) const BEHIND: &str = "behind";
    pub(in crate::inspect) const REFUSED: &str = "refused";
    pub(in crate::inspect) const SILENT: &str = "silent";
    pub(in crate::inspect) const UNKNOWN: &str = "unknown";
}

fn word(state: &ObjectState) -> &'static str {
    match state {
        ObjectState::Programmed => words::PROGRAMMED,
        ObjectState::Behind | ObjectState::Diverged => words::BEHIND,
        ObjectState::Refused(_) => words::REFUSED,
        ObjectState::Silent => words::SILENT,
        ObjectState::Unknown => words::UNKNOWN,
    }
}

impl Inspect {
    /// Answers another replica.
    pub(super) fn known(
        &self,
        asked: &inspect::ShareRequest,
        now: Instant,
    ) -> Result<inspect::ShareResponse, Status> {
        let object = asked.object.as_ref().map(pick::object).transpose()?;
        // In this order, so that the object's placement is never ahead of the head.
        let placed = object.as_ref().and_then(|object| self.places.borrow().get(object).cloned());
        let head = self.published.head();
        let Some(object) = object else { return Ok(self.share_proxies(&head, now)) };
        Ok(match Extent::of(&object, placed.as_deref(), &head) {
            Some(extent) => {
                let object_version = self.compiled_version(&object, placed.as_deref(), &extent);
                inspect::ShareResponse { object_version, ..self.share_object(&extent, &head, now) }
            }
            // The object is not known here yet, or was deleted: none of the proxies here has it in the other replica's
            // version.
            None => {
                let mut share = self.share_proxies(&head, now);
                share.state.clear();
                for proxy in &mut share.proxies {
                    words::BEHIND.clone_into(&mut proxy.state);
                    proxy.proxy = None;
                }
                share
            }
        })
    }

    /// The proxies of this replica.
    pub(super) fn share_proxies(&self, head: &Head, now: Instant) -> inspect::ShareResponse {
        let proxies = self.registry.list();
        let shared = proxies.iter().map(|proxy| inspect::SharedProxy {
            proxy: Some(convert::proxy(proxy, head, now)),
            ..convert::shared(proxy, now)
        });
        let left = self.registry.left(now).iter().map(ToString::to_string).collect();
        inspect::ShareResponse {
            state: apart::state(head),
            proxies: shared.collect(),
            left,
            ..self.signed(head, now)
        }
    }

    /// The states of an object on the proxies of this replica.
    pub(super) fn share_object(
        &self,
        extent: &Extent<'_>,
        head: &Head,
        now: Instant,
    ) -> inspect::ShareResponse {
        let proxies = self.registry.list();
        let shared = proxies.iter().map(|proxy| {
            let state = extent.state(proxy);
            let refused: &[_] = match &state {
                ObjectState::Refused(refused) => refused,
                _ => &[],
            };
            let of_object = convert::of_object(proxy, refused, head, now);
            let state = word(&state).to_owned();
            inspect::SharedProxy { state, of_object: Some(of_object), ..convert::shared(proxy, now) }
        });
        let object = extent.digest().to_vec();
        inspect::ShareResponse { object: object.into(), proxies: shared.collect(), ..self.signed(head, now) }
    }

    /// The version of an object that is offered, for a replica that compiles it to something else.
    pub(super) fn compiled_version(
        &self,
        object: &ObjectRef,
        placed: Option<&Placement>,
        extent: &Extent<'_>,
    ) -> String {
        let problems = self.problems_of(object);
        let is_offered = |placed: &&Placement| {
            !is_rejected(placed, problems.as_deref().unwrap_or_default()) && !extent.is_held_back()
        };
        placed.filter(is_offered).map(|it| it.compiled.resource_version.to_string()).unwrap_or_default()
    }

    fn signed(&self, head: &Head, now: Instant) -> inspect::ShareResponse {
        let unread = self.start.source.unread();
        let unread = unread.iter().map(|(list, ReadTo { revision, content })| inspect::Unread {
            list: list.to_owned(),
            revision,
            content,
        });
        let unread = unread.collect();
        inspect::ShareResponse {
            replica: head.lineage.0.to_vec().into(),
            name: self.peers.name().to_owned(),
            compile_revision: COMPILE_REVISION,
            ready: head.is_ready() && !*self.ending.borrow(),
            settled: self.registry.is_settled(now) || self.peers.is_settled(now),
            ended: self.peers.ended(),
            stale: self.peers.is_stale(),
            unread,
            unheard: self.unheard(),
            ..inspect::ShareResponse::default()
        }
    }

    /// What is not heard of the API server, in words.
    fn unheard(&self) -> String {
        let source = &self.start.source;
        let mut said: Vec<_> = source.unheard().iter().map(Unheard::stays).collect();
        said.extend(source.failing().iter().map(Failing::stays));
        said.join("; ")
    }

    /// The proxies of all replicas, by id, and the replicas.
    pub(super) async fn fleet(&self) -> (Vec<inspect::Proxy>, Vec<inspect::Replica>) {
        let others = self.peers.ask(None).await;
        let own = self.share_proxies(&self.published.head(), shared::clock::now());
        listed(Fleet::of(own, others, !self.peers.is_none()))
    }
}

/// The proxies by id, as the replica that answers sees them, and the replicas.
fn listed(fleet: Fleet) -> (Vec<inspect::Proxy>, Vec<inspect::Replica>) {
    let members = fleet.members.into_values().filter_map(|member| {
        let proxy = member.shared.proxy?;
        let is_of_the_same = member.about == About::Same;
        let in_sync = proxy.in_sync && is_of_the_same;
        let in_sync_elsewhere = proxy.in_sync && !is_of_the_same;
        Some(inspect::Proxy { in_sync, in_sync_elsewhere, replica: member.replica, ..proxy })
    });
    let lost = fleet.lost.into_values().map(|proxy| inspect::Proxy { in_sync: false, lost: true, ..proxy });
    let mut proxies: Vec<_> = members.chain(lost).collect();
    proxies.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    (proxies, fleet.replicas)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::peers::fleet::Other;

    fn share(state: u8, id: &str, in_sync: bool) -> inspect::ShareResponse {
        let proxy = inspect::Proxy { id: id.to_owned(), in_sync, ..Default::default() };
        let shared = inspect::SharedProxy { id: id.to_owned(), proxy: Some(proxy), ..Default::default() };
        inspect::ShareResponse {
            replica: vec![state; 16].into(),
            state: vec![state; 32].into(),
            proxies: vec![shared],
            ..Default::default()
        }
    }

    /// With a replica of another build it would be "catching up" for as long as both run.
    #[test]
    fn one_that_has_all_that_its_replica_offers_is_told_from_one_that_catches_up() {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        for (own, other, in_sync, expected) in [
            (1, 1, true, (true, false)),
            (1, 2, true, (false, true)),
            (1, 1, false, (false, false)),
            (1, 2, false, (false, false)),
        ] {
            let others = vec![Other::answered(at, share(other, "there", in_sync))];
            let (proxies, _) = listed(Fleet::of(share(own, "here", true), others, true));
            let said: Vec<_> = proxies.iter().map(|it| (it.in_sync, it.in_sync_elsewhere)).collect();
            assert_eq!(said, [(true, false), expected], "{own} {other}");
        }
        let lost = inspect::Proxy { id: "lost".to_owned(), in_sync: true, ..Default::default() };
        let lost = Other::lost(at, String::new(), "no answer".to_owned(), vec![lost]);
        let (proxies, _) = listed(Fleet::of(share(1, "here", true), vec![lost], true));
        assert_eq!((proxies[1].lost, proxies[1].in_sync, proxies[1].in_sync_elsewhere), (true, false, false));
    }
}
