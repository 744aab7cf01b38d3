//! Combines what all replicas know.
//!
//! **Invariant:** pure. A proxy is counted once, by the replica that heard from it last; one that only an unreachable
//! replica knew is not left out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use shared::proto::inspect;

/// Another replica.
#[derive(Clone, PartialEq, Debug)]
pub struct Other {
    /// Its address, or the name that does not resolve.
    address: String,
    name: String,
    share: Result<inspect::ShareResponse, Lost>,
    /// How it differs from this replica; empty: it does not.
    differs: String,
}

/// A replica that does not answer.
#[derive(Clone, PartialEq, Debug)]
struct Lost {
    why: String,
    /// Its proxies as of its last answer.
    proxies: Vec<inspect::Proxy>,
    /// It announced its end: only its proxies that are not found elsewhere are missing.
    ended: bool,
}

impl Other {
    /// A replica that answered.
    pub fn answered(address: SocketAddr, share: inspect::ShareResponse) -> Self {
        Self::new(address.to_string(), share.name.clone(), Ok(share))
    }

    fn new(address: String, name: String, share: Result<inspect::ShareResponse, Lost>) -> Self {
        Self { address, name, share, differs: String::new() }
    }

    /// It offers something else than this one, in these words.
    pub fn differing(self, differs: &str) -> Self {
        Self { differs: differs.to_owned(), ..self }
    }

    /// Its address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.parse().ok()
    }

    /// Its answer, if there is one.
    pub fn share(&self) -> Option<&inspect::ShareResponse> {
        self.share.as_ref().ok()
    }

    /// Its pod or host name with its address, for logs.
    pub fn who(&self) -> String {
        match &*self.name {
            "" => self.address.clone(),
            name => format!("{name} ({})", self.address),
        }
    }

    /// A replica that did not answer; these were its proxies.
    pub fn lost(address: SocketAddr, name: String, why: String, proxies: Vec<inspect::Proxy>) -> Self {
        Self::new(address.to_string(), name, Err(Lost { why, proxies, ended: false }))
    }

    /// A replica that has ended as announced; these were its proxies.
    pub fn ended(address: SocketAddr, name: String, proxies: Vec<inspect::Proxy>) -> Self {
        let why = "it has ended".to_owned();
        Self::new(address.to_string(), name, Err(Lost { why, proxies, ended: true }))
    }

    /// Whether it answered; `None`: it did not, after announcing its end.
    pub fn has_answered(&self) -> Option<bool> {
        match &self.share {
            Ok(_) => Some(true),
            Err(lost) if lost.ended => None,
            Err(_) => Some(false),
        }
    }

    /// Proxies that had a stream to it when it answered, or had said goodbye to it.
    pub fn knows_of(&self) -> impl Iterator<Item = &str> {
        self.share.iter().flat_map(|share| {
            let connected = share.proxies.iter().filter(|proxy| proxy.connected).map(|proxy| &*proxy.id);
            connected.chain(share.left.iter().map(|id| &**id))
        })
    }

    /// A name that does not resolve.
    pub fn nowhere((name, why): (String, String)) -> Self {
        Self::new(name, String::new(), Err(Lost { why, proxies: Vec::new(), ended: false }))
    }
}

/// A proxy, as reported by the replica that heard from it last.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// The report.
    pub shared: inspect::SharedProxy,
    /// What it is about.
    pub about: About,
    /// The replica. Empty: this one.
    pub replica: String,
}

/// What the report of a replica is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// What this replica offers; of an object, the same version of it, whatever another build makes of that.
    Same,
    /// What another build makes of an object. Whether it is the same version is not known.
    OtherBuild,
    /// Something else.
    Another,
}

impl About {
    fn of(own: &inspect::ShareResponse, share: &inspect::ShareResponse) -> Self {
        let is_other_build = own.compile_revision != share.compile_revision;
        let versions = [own, share].map(|it| &*it.object_version);
        match (own.state == share.state && own.object == share.object, own.object.is_empty()) {
            (true, _) => Self::Same,
            (false, false) if is_other_build && versions.contains(&"") => Self::OtherBuild,
            (false, false) if is_other_build && versions[0] == versions[1] => Self::Same,
            (false, _) => Self::Another,
        }
    }
}

/// The combined knowledge.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fleet {
    /// Proxies by id.
    pub members: BTreeMap<String, Member>,
    /// Proxies that only unreachable replicas knew.
    pub lost: BTreeMap<String, inspect::Proxy>,
    /// All replicas; empty if this is the only one, without peers configured, and reads everything.
    pub replicas: Vec<inspect::Replica>,
    /// Whether proxies of earlier processes have had time to reconnect.
    pub settled: bool,
}

impl Fleet {
    /// Combines what this replica knows with what the others do.
    pub fn of(own: inspect::ShareResponse, others: Vec<Other>, has_peers: bool) -> Self {
        // Without the proxies, which are counted below.
        let asked = inspect::ShareResponse {
            state: own.state.clone(),
            object: own.object.clone(),
            object_version: own.object_version.clone(),
            compile_revision: own.compile_revision,
            ..Default::default()
        };
        let mut fleet = Self { settled: own.settled, ..Self::default() };
        let (name, unread) = (own.name.clone(), said_of(&own));
        if has_peers || !unread.is_empty() {
            fleet.replicas.push(inspect::Replica { name, unread, ..inspect::Replica::default() });
        }
        fleet.take(own, String::new(), About::Same);
        let mut unheard = Vec::new();
        for Other { address, name, share, differs } in others {
            match share {
                Ok(share) => {
                    let about = About::of(&asked, &share);
                    let is_equal = share.state == asked.state && share.object == asked.object;
                    fleet.settled &= share.settled;
                    fleet.replicas.push(inspect::Replica {
                        address,
                        name: name.clone(),
                        differs: match asked.compile_revision == share.compile_revision || is_equal {
                            true => differs,
                            false => of_another_build(share.compile_revision, asked.compile_revision, about),
                        },
                        unread: said_of(&share),
                        ..Default::default()
                    });
                    fleet.take(share, name, about);
                }
                Err(lost) => unheard.push((address, name, lost)),
            }
        }
        for (address, name, Lost { why, proxies, ended }) in unheard {
            let mut count = 0;
            for proxy in proxies {
                if !fleet.members.contains_key(&proxy.id) {
                    fleet.lost.insert(proxy.id.clone(), proxy);
                    count += 1;
                }
            }
            if count > 0 || !ended {
                fleet.replicas.push(inspect::Replica {
                    address,
                    name,
                    unreachable: why,
                    proxies: count,
                    ..Default::default()
                });
            }
        }
        fleet
    }

    fn take(&mut self, share: inspect::ShareResponse, replica: String, about: About) {
        for shared in share.proxies {
            let is_newer = self.members.get(&shared.id).is_none_or(|known| is_newer(&shared, &known.shared));
            if is_newer {
                let member = Member { about, replica: replica.clone(), shared };
                self.members.insert(member.shared.id.clone(), member);
            }
        }
    }
}

/// What two compile revisions mean where what is offered differs, as in a rolling upgrade.
fn of_another_build(its: u32, own: u32, about: About) -> String {
    let build = format!("is of another build (compile revision {its}, this one {own})");
    match about {
        About::Same => format!("{build}, and has compiled the same version of the object"),
        About::OtherBuild | About::Another => {
            format!("{build}, which makes something else of the same objects: ask it about its proxies")
        }
    }
}

/// What a replica does not hear or may not list, in words.
fn said_of(share: &inspect::ShareResponse) -> String {
    let said = [share.unheard.clone(), unread_of(share)];
    said.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

/// What a replica may not list, in words.
fn unread_of(share: &inspect::ShareResponse) -> String {
    let lists: Vec<_> = share.unread.iter().map(|it| &*it.list).collect();
    match (lists.is_empty(), share.stale) {
        (true, _) => String::new(),
        (false, true) => {
            format!(
                "may not list {}, and sends its proxies to a replica that has read more of it",
                lists.join("; ")
            )
        }
        (false, false) => format!("may not list {}: what it knows of it stays in use", lists.join("; ")),
    }
}

/// Whether the first was heard from after the second.
fn is_newer(first: &inspect::SharedProxy, second: &inspect::SharedProxy) -> bool {
    let unheard = |it: &inspect::SharedProxy| {
        let span = it.unheard.unwrap_or_default();
        (span.seconds, span.nanos, !it.connected)
    };
    unheard(first) < unheard(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(id: &str, unheard: i64, connected: bool) -> inspect::SharedProxy {
        inspect::SharedProxy {
            id: id.to_owned(),
            unheard: Some(prost_types::Duration { seconds: unheard, nanos: 0 }),
            connected,
            ..Default::default()
        }
    }

    fn share(replica: u8, proxies: Vec<inspect::SharedProxy>) -> inspect::ShareResponse {
        inspect::ShareResponse {
            replica: vec![replica; 16].into(),
            name: format!("replica-{replica}"),
            settled: true,
            object: vec![7; 16].into(),
            proxies,
            ..Default::default()
        }
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn is_whole(fleet: &Fleet) -> bool {
        fleet.replicas.iter().all(|replica| replica.unreachable.is_empty())
    }

    fn proxy(id: &str) -> inspect::Proxy {
        inspect::Proxy { id: id.to_owned(), ..Default::default() }
    }

    #[test]
    fn one_that_moved_is_counted_once_where_it_was_heard_last() {
        let own =
            share(1, vec![shared("moved", 20, true), shared("stays", 3, true), shared("both", 1, false)]);
        let other =
            share(2, vec![shared("moved", 2, true), shared("stays", 9, false), shared("both", 1, true)]);
        for (first, second, moved_to) in [(own.clone(), other.clone(), "replica-2"), (other, own, "")] {
            let fleet = Fleet::of(first, vec![Other::answered(at(2), second)], true);
            assert_eq!(fleet.members.len(), 3);
            assert_eq!(fleet.members["moved"].replica, moved_to);
            assert!(fleet.members.values().all(|member| member.shared.connected), "{fleet:?}");
            assert!(is_whole(&fleet) && fleet.settled);
        }
    }

    #[test]
    fn parts_of_a_second_count() {
        let heard = |replica: u8, nanos: i32| {
            let unheard = Some(prost_types::Duration { seconds: 1, nanos });
            share(replica, vec![inspect::SharedProxy { unheard, ..shared("a", 1, true) }])
        };
        for (own, other, from) in [(7, 2, "replica-2"), (2, 7, "")] {
            let fleet = Fleet::of(heard(1, own), vec![Other::answered(at(2), heard(2, other))], true);
            assert_eq!(fleet.members["a"].replica, from);
        }
    }

    #[test]
    fn a_replica_that_does_not_answer_leaves_its_proxies_unknown_unless_they_were_heard_elsewhere() {
        let own = share(1, vec![shared("here", 1, true)]);
        let lost =
            Other::lost(at(3), "replica-3".into(), "no answer".into(), vec![proxy("here"), proxy("there")]);
        let fleet =
            Fleet::of(own, vec![lost, Other::nowhere(("a.test:1".into(), "no such name".into()))], true);
        assert_eq!(fleet.lost.keys().collect::<Vec<_>>(), ["there"]);
        assert!(!is_whole(&fleet));
        let said: Vec<_> = fleet.replicas.iter().map(|it| (it.address.as_str(), it.proxies)).collect();
        assert_eq!(said, [("", 0), ("127.0.0.1:3", 1), ("a.test:1", 0)]);
    }

    #[test]
    fn what_is_said_of_another_state_is_said_of_something_else() {
        let own = share(1, vec![]);
        let older =
            inspect::ShareResponse { object: vec![6; 16].into(), ..share(2, vec![shared("a", 1, true)]) };
        let fleet = Fleet::of(own, vec![Other::answered(at(2), older)], true);
        assert_eq!(fleet.members["a"].about, About::Another);
        let apart =
            inspect::ShareResponse { state: vec![5; 16].into(), ..share(2, vec![shared("a", 1, true)]) };
        let fleet = Fleet::of(share(1, vec![]), vec![Other::answered(at(2), apart)], true);
        assert_eq!(fleet.members["a"].about, About::Another);
        let equal = Other::answered(at(2), share(2, vec![shared("a", 1, true)]));
        assert_eq!(Fleet::of(share(1, vec![]), vec![equal], true).members["a"].about, About::Same);
        let begins = inspect::ShareResponse { settled: false, ..share(3, vec![]) };
        assert!(!Fleet::of(share(1, vec![]), vec![Other::answered(at(3), begins)], true).settled);
    }

    /// In a rolling upgrade it is not known here how far its proxies are, and why not is said.
    #[test]
    fn a_replica_of_another_build_that_offers_something_else_is_named() {
        let of = |replica: u8, compile_revision, state| {
            let state = vec![state; 32].into();
            inspect::ShareResponse { compile_revision, state, ..share(replica, vec![]) }
        };
        let said = |revision, state| {
            let other = Other::answered(at(2), of(2, revision, state)).differing("other words");
            Fleet::of(of(1, 2, 7), vec![other], true).replicas.remove(1).differs
        };
        assert_eq!(said(2, 8), "other words");
        for other in [1, 3] {
            let expected = format!("is of another build (compile revision {other}, this one 2), ");
            assert!(said(other, 8).starts_with(&expected), "{}", said(other, 8));
            assert_eq!(said(other, 7), "other words", "what is offered is the same");
        }
    }

    /// Two builds make different bytes of one version of an object, and a proxy that serves either serves that version.
    #[test]
    fn what_another_build_says_of_an_object_is_about_the_version_that_it_compiled() {
        let of = |compile_revision, object: u8, version: &str| inspect::ShareResponse {
            compile_revision,
            object: vec![object; 16].into(),
            object_version: version.to_owned(),
            ..share(2, vec![shared("a", 1, true)])
        };
        let own = |version| inspect::ShareResponse { proxies: Vec::new(), ..of(1, 7, version) };
        for (other, expected) in [
            (of(2, 8, "12"), About::Same),
            (of(2, 8, "11"), About::Another),
            (of(2, 8, ""), About::OtherBuild),
            (of(2, 7, ""), About::Same),
            (of(1, 8, "12"), About::Another),
        ] {
            let fleet = Fleet::of(own("12"), vec![Other::answered(at(2), other.clone())], true);
            assert_eq!(fleet.members["a"].about, expected, "{other:?}");
        }
        let fleet = Fleet::of(own(""), vec![Other::answered(at(2), of(2, 8, ""))], true);
        assert_eq!(fleet.members["a"].about, About::OtherBuild, "neither says which");
    }

    #[test]
    fn alone_there_is_no_word_of_replicas() {
        let fleet = Fleet::of(share(1, vec![shared("a", 1, true)]), vec![], false);
        assert!(fleet.replicas.is_empty());
    }

    #[test]
    fn what_a_replica_may_not_list_is_said_of_it() {
        let unread = |replica, stale| {
            let list = inspect::Unread { list: "secrets".to_owned(), revision: 7, content: 1 };
            inspect::ShareResponse { unread: vec![list], stale, ..share(replica, vec![]) }
        };
        let said = |own, others, has_peers| {
            let fleet = Fleet::of(own, others, has_peers);
            fleet.replicas.into_iter().map(|it| it.unread).collect::<Vec<_>>()
        };
        let stays = "may not list secrets: what it knows of it stays in use";
        assert_eq!(said(unread(1, false), vec![], false), [stays], "alone, too");
        let unheard = "has not heard the API server".to_owned();
        let deaf = inspect::ShareResponse { unheard: unheard.clone(), ..unread(1, false) };
        assert_eq!(said(deaf, vec![], false), [format!("{unheard}; {stays}")]);
        let goes = "may not list secrets, and sends its proxies to a replica that has read more of it";
        assert_eq!(said(share(1, vec![]), vec![Other::answered(at(2), unread(2, true))], true), ["", goes]);
    }
}
