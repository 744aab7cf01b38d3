//! How many proxies have a version of the history, over all replicas.
//!
//! Positions in a log mean nothing to other replicas, so a proxy of another replica is placed by the version that it has
//! acknowledged.
//!
//! **Invariant:** never optimistic: a proxy whose version is not in this replica's history counts as having none, and
//! so do one that diverged, a silent one, and one that only a replica knew that does not answer.

use std::collections::HashMap;
use std::sync::Arc;

use shared::proto::inspect;
use shared::version::Seq;

use super::Inspect;
use crate::peers::fleet::{About, Fleet, Member};
use crate::serve::registry::Registry;
use crate::store::{Head, PastVersion};

/// The newest version that each proxy has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Number of proxies.
    pub(super) proxies: usize,
    /// Of those that have a version of the history: its place, the newest being 0. Sorted.
    places: Vec<usize>,
}

impl Reach {
    /// Number of proxies that have the version at a place, or a newer one.
    pub(super) fn acked(&self, place: usize) -> usize {
        self.places.partition_point(|it| *it <= place)
    }

    /// Of the connected proxies of this replica, and of all others in the fleet. A silent one may serve anything.
    fn of(own: &HashMap<Arc<str>, Seq>, fleet: &Fleet, head: &Head) -> Self {
        let released = || head.history.newest_first().enumerate().filter(|(_, version)| version.released);
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (place, PastVersion { root, .. }) in released().map(|(place, version)| (place, &**version)) {
            // Of a version that was offered repeatedly, which one it acknowledged is not known: the oldest counts.
            by_name.insert(root.short(), place);
        }
        let newest = released().next().map(|(place, _)| place);
        let own_places = own.values().map(|acked| {
            let mut had = released().filter(|(_, version)| *acked > Seq::default() && *acked >= version.seq);
            had.next().map(|(place, _)| place)
        });
        let is_other = |member: &&Member| !own.contains_key(&*member.shared.id);
        let others = fleet.members.values().filter(is_other).map(|Member { shared, about, .. }| {
            let proxy = shared.proxy.as_ref().filter(|proxy| shared.connected && !proxy.diverged)?;
            match *about == About::Same && proxy.in_sync {
                true => newest,
                false => by_name.get(&proxy.acked).copied(),
            }
        });
        let all: Vec<_> = own_places.chain(others).chain(fleet.lost.values().map(|_| None)).collect();
        let mut places: Vec<_> = all.iter().copied().flatten().collect();
        places.sort_unstable();
        Self { proxies: all.len(), places }
    }
}

/// For each version of the history, the newest first, the place at which it was offered; `None`: it is held back, or was
/// replaced before it was offered.
pub(super) fn offered(head: &Head) -> Vec<Option<usize>> {
    let versions: Vec<_> = head.history.newest_first().collect();
    let mut offered = vec![None; versions.len()];
    // What is compiled while a version is pinned may equal it.
    let mut in_force = None;
    for (place, version) in versions.iter().enumerate().rev() {
        if version.released {
            in_force = Some((version.root, place));
        }
        offered[place] = in_force.filter(|(root, _)| *root == version.root).map(|(_, place)| place);
    }
    let mut since = HashMap::new();
    for (place, version) in versions.iter().enumerate() {
        if version.released {
            since.insert(version.root, place);
        }
        offered[place] = since.get(&version.root).copied().or(offered[place]);
    }
    offered
}

fn connected(registry: &Registry) -> HashMap<Arc<str>, Seq> {
    let mut connected = HashMap::new();
    registry.for_each(|proxy| {
        // It has something that was not sent to it.
        let acked = if proxy.is_diverged() { Seq::default() } else { proxy.config.seq };
        connected.insert(Arc::clone(&proxy.id), acked);
    });
    connected
}

impl Inspect {
    /// The newest version that each proxy of the fleet has, and the replicas. The head is no older than their answers.
    pub(super) async fn reach(&self) -> (Reach, Arc<Head>, Vec<inspect::Replica>) {
        let others = self.peers.ask(None).await;
        let head = self.published.head();
        let own = connected(&self.registry);
        let share = self.share_proxies(&head, shared::clock::now());
        let fleet = Fleet::of(share, others, !self.peers.is_none());
        (Reach::of(&own, &fleet, &head), head, fleet.replicas)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::clock;
    use shared::delta::Delta;
    use shared::entry::Entry;
    use shared::resource::{Denial, Host, Resource};
    use shared::version::{Claim, Lineage};

    use super::*;
    use crate::pin::{How, Pin};
    use crate::serve::message::Hello;
    use crate::serve::session::Standing;
    use crate::store::{Changes, Store};

    /// A head after some versions, the names of which are returned too, the newest first.
    fn head() -> (Arc<Head>, Vec<String>) {
        let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
        for reason in ["one", "two", "three", "two"] {
            let denied = Some(Denial { reason: reason.to_owned() });
            let host = Resource::Host(Host { denied, ..Host::default() });
            let up = vec![Arc::new(Entry::encode("a.test", &host))];
            let config = Delta { up, removed: Vec::new() };
            store.commit(Changes { config, ..Changes::default() }, clock::now(), clock::wall());
        }
        let head = published.head();
        let names = head.history.newest_first().map(|version| version.root.short()).collect();
        (head, names)
    }

    #[test]
    fn what_was_held_back_is_offered_once_it_is_released_or_equals_what_is() {
        let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
        let mut step = |reason: &str, pin: Option<&Arc<Pin>>| {
            let denied = Some(Denial { reason: reason.to_owned() });
            let host = Resource::Host(Host { denied, ..Host::default() });
            let config = Delta { up: vec![Arc::new(Entry::encode("a.test", &host))], removed: Vec::new() };
            let changes = Changes { config, pin: pin.cloned(), ..Changes::default() };
            store.commit(changes, clock::now(), clock::wall());
            offered(&published.head())
        };
        assert_eq!(step("one", None), [Some(0)]);
        let one = published.head().config.snapshot.clone();
        let pin = Pin::new(How::Pin, one.root(), one, clock::wall(), Duration::from_secs(60), "");
        let pin = Arc::new(pin);
        assert_eq!(step("two", Some(&pin)), [None, Some(1)]);
        assert_eq!(step("one", Some(&pin)), [Some(2), None, Some(2)], "as it is offered");
        assert_eq!(step("one", None), [Some(2), None, Some(2)], "nothing was held back in the end");
        assert_eq!(step("three", Some(&pin))[..2], [None, Some(3)]);
        assert_eq!(step("three", None)[..3], [Some(0), Some(0), Some(4)], "released");
    }

    fn member(id: &str, acked: &str, in_sync: bool, is_of_the_same: bool) -> (String, Member) {
        let proxy = inspect::Proxy { acked: acked.to_owned(), in_sync, ..Default::default() };
        let shared = inspect::SharedProxy {
            id: id.to_owned(),
            connected: true,
            proxy: Some(proxy),
            ..Default::default()
        };
        let about = if is_of_the_same { About::Same } else { About::Another };
        (id.to_owned(), Member { shared, about, replica: "other".to_owned() })
    }

    #[test]
    fn a_proxy_that_diverged_has_no_version() {
        let (head, _) = head();
        let registry = Arc::new(Registry::default());
        let _seats = [("a-1", false), ("b-1", true)].map(|(id, diverged)| {
            let seat = registry.enter(&Hello::of(id), Claim::random(), "", clock::wall()).unwrap();
            let config = Standing { seq: head.config.seq, diverged, ..Standing::default() };
            seat.update(&config, &Standing::default());
            seat
        });
        let reach = Reach::of(&connected(&registry), &Fleet::default(), &head);
        assert_eq!((reach.proxies, reach.acked(0)), (2, 1));
    }

    #[test]
    fn proxies_of_other_replicas_count_by_the_version_that_they_have() {
        let (head, names) = head();
        let own = HashMap::from([("own".into(), head.config.seq), ("new".into(), Seq::default())]);
        let mut fleet = Fleet::default();
        let reach = |fleet: &Fleet| {
            let reach = Reach::of(&own, fleet, &head);
            (reach.proxies, (0..names.len()).map(|place| reach.acked(place)).collect::<Vec<_>>())
        };
        assert_eq!(reach(&fleet), (2, vec![1, 1, 1, 1]));
        fleet.members.extend([
            member("same", "?", true, true),
            member("third", &names[1], false, true),
            // It was offered twice, and may have been acknowledged before the third.
            member("second", &names[2], true, false),
            member("first", &names[3], false, false),
            member("unknown", "0123456789ab", true, false),
            member("nothing", "", false, true),
            // It is moving, and is connected here as well.
            member("own", &names[3], false, false),
        ]);
        // It had the newest version, and has something else now.
        let (id, mut diverged) = member("diverged", &names[0], false, true);
        diverged.shared.proxy.as_mut().unwrap().diverged = true;
        fleet.members.insert(id, diverged);
        assert_eq!(reach(&fleet), (9, vec![2, 3, 4, 5]));
        fleet.members.remove("diverged");
        let silent = member("silent", &names[0], false, true);
        let shared = inspect::SharedProxy { connected: false, ..silent.1.shared };
        fleet.members.insert(silent.0, Member { shared, ..silent.1 });
        assert_eq!(reach(&fleet), (9, vec![2, 3, 4, 5]), "a silent one counts, and has nothing");
        fleet
            .lost
            .insert("lost".to_owned(), inspect::Proxy { acked: names[0].clone(), ..Default::default() });
        assert_eq!(reach(&fleet), (10, vec![2, 3, 4, 5]));
    }
}
