//! The replicas of the control plane: their addresses, the order in which they are tried, and the connection to one
//! that accepts.
//!
//! All addresses of all names are tried before an attempt counts as failed, in an order specific to this proxy, so
//! that a fleet spreads over the replicas. Names are resolved again each time.
//!
//! **Invariant:** a replica that failed recently is tried after all others, but is tried: it may be the only one.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shared::backoff::Backoff;
use shared::clock;
use shared::proto::config::{ControlMessage, ProxyMessage};
use shared::tls::connect::{Doubt, Heard, Plain};
use tokio::net::lookup_host;
use tokio::sync::mpsc;
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tracing::debug;

use super::certificate::Holder;
use super::client::config_stream_client::ConfigStreamClient;
use super::{Ended, MESSAGE, WELCOME};

/// Time for a replica to accept a call while there are others to try.
const SHORT: Duration = Duration::from_secs(2);
/// Time limit for resolving a name.
const LOOKUP: Duration = Duration::from_secs(2);
/// How long a replica that failed is tried last.
const FAILED: Duration = Duration::from_secs(30);
/// Delays between attempts to move elsewhere, while the stream continues.
const ELSEWHERE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// One of the configured URLs.
#[derive(Debug)]
pub(super) struct Url {
    pub(super) endpoint: Endpoint,
    /// Without encryption.
    pub(super) is_plain: bool,
}

/// All replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    urls: Vec<Url>,
    known: Mutex<Known>,
}

/// What is known about them.
#[derive(Debug)]
struct Known {
    /// The addresses of each URL at the last lookup.
    found: Vec<Vec<SocketAddr>>,
    /// Addresses that failed, and when.
    failed: HashMap<SocketAddr, Instant>,
}

/// A call that a replica has accepted.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) address: SocketAddr,
    pub(super) channel: Channel,
    pub(super) doubt: Option<Doubt>,
    /// What is read from its connection.
    pub(super) heard: Heard,
    pub(super) answers: mpsc::Sender<ProxyMessage>,
    pub(super) inbound: Streaming<ControlMessage>,
    /// Whether Hello was sent.
    pub(super) greeted: bool,
}

/// No replica accepts a call.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) ended: Ended,
    /// Whether TLS itself failed.
    pub(super) is_doubted: bool,
}

impl<E: Into<Ended>> From<E> for Failed {
    fn from(ended: E) -> Self {
        Self { ended: ended.into(), is_doubted: false }
    }
}

impl Replicas {
    pub(super) fn new(urls: Vec<Url>) -> Self {
        let found = vec![Vec::new(); urls.len()];
        Self { urls, known: Mutex::new(Known { found, failed: HashMap::new() }) }
    }

    pub(super) fn urls(&self) -> &[Url] {
        &self.urls
    }

    /// Has the replica at this address tried last for a while.
    pub(super) fn failed(&self, address: SocketAddr) {
        self.known().failed.insert(address, clock::now());
    }

    /// The replica at this address works.
    pub(super) fn serves(&self, address: SocketAddr) {
        self.known().failed.remove(&address);
    }

    /// A call that one of them accepts. `hello` is sent with it; without one the replica waits for it. The one at
    /// `left` is tried last.
    pub(super) async fn open(
        &self,
        certificate: Option<&Holder>,
        mut hello: impl FnMut() -> Option<ProxyMessage>,
        left: Option<SocketAddr>,
    ) -> Result<Way, Failed> {
        let looked = self.look().await;
        let mut places = self.known().places(looked, left, clock::now())?;
        let mut worst: Option<Failed> = None;
        while let Some((url, address)) = places.pop() {
            // The last one may be slow: there is no alternative.
            let limit = if places.is_empty() { WELCOME } else { SHORT };
            match self.try_one(&self.urls[url], address, certificate, &mut hello, limit).await {
                Ok(way) => return Ok(way),
                Err(failed) => {
                    self.failed(address);
                    // An error about this proxy's identity is more informative than that another replica is
                    // unreachable.
                    if worst.as_ref().is_none_or(|worst| !worst.is_doubted && !worst.ended.is_about_who()) {
                        worst = Some(failed);
                    }
                }
            }
        }
        Err(worst.unwrap_or_else(|| nowhere("no name of it has an address").into()))
    }

    /// The same, elsewhere than at `left` if there is another address, after a delay, and repeatedly until there is.
    pub(super) async fn elsewhere(
        self: Arc<Self>,
        certificate: Option<&Holder>,
        left: SocketAddr,
        after: Duration,
    ) -> Way {
        time::sleep(after).await;
        let mut retry = Backoff::new(ELSEWHERE.0, ELSEWHERE.1);
        loop {
            match self.open(certificate, || None, Some(left)).await {
                Ok(way) => return way,
                Err(failed) => debug!(reason = %failed.ended, "no other replica takes this proxy yet"),
            }
            time::sleep(ELSEWHERE.0 + retry.next_delay()).await;
        }
    }

    async fn try_one(
        &self,
        url: &Url,
        address: SocketAddr,
        certificate: Option<&Holder>,
        hello: &mut impl FnMut() -> Option<ProxyMessage>,
        limit: Duration,
    ) -> Result<Way, Failed> {
        let connector = match certificate.filter(|_| !url.is_plain) {
            Some(certificate) => {
                let connector = certificate.connector(&url.endpoint).await;
                Some(connector.map_err(|error| certificate.lacks(error))?.at(address))
            }
            None => None,
        };
        let doubt = connector.as_ref().map(|connector| connector.doubt());
        let plain = Plain::to(address);
        let heard = connector.as_ref().map_or_else(|| plain.heard(), |connector| connector.heard());
        let call = async {
            let channel = match connector {
                Some(connector) => url.endpoint.connect_with_connector(connector).await?,
                None => url.endpoint.connect_with_connector(plain).await?,
            };
            let (answers, outbound) = mpsc::channel(16);
            let hello = hello();
            let greeted = hello.is_some();
            // Sent with the request: a control plane may wait for it before it responds at all.
            hello.into_iter().for_each(|hello| _ = answers.try_send(hello));
            let mut client = ConfigStreamClient::new(channel.clone()).max_decoding_message_size(MESSAGE);
            let inbound = client.connect(ReceiverStream::new(outbound)).await?.into_inner();
            Ok(Way { address, channel, doubt: doubt.clone(), heard, answers, inbound, greeted })
        };
        let called = time::timeout(limit, call).await;
        called.unwrap_or_else(|_| Err(Ended::Silent(limit))).map_err(|ended| {
            let is_doubted = doubt.is_some_and(|doubt| doubt.is_there());
            Failed { ended, is_doubted }
        })
    }

    /// The addresses of each URL, or why they are unknown.
    async fn look(&self) -> Vec<Result<Vec<SocketAddr>, String>> {
        futures::future::join_all(self.urls.iter().map(|url| {
            let uri = url.endpoint.uri();
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(if url.is_plain { 80 } else { 443 });
            async move {
                match time::timeout(LOOKUP, lookup_host((host, port))).await {
                    Ok(Ok(addresses)) => Ok(addresses.collect()),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("its name was not looked up within {} s", LOOKUP.as_secs())),
                }
            }
        }))
        .await
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, url) in self.urls.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}", url.endpoint.uri())?;
        }
        Ok(())
    }
}

impl Known {
    /// The addresses to try, in reverse order. A name that cannot be resolved keeps its old addresses.
    fn places(
        &mut self,
        looked: Vec<Result<Vec<SocketAddr>, String>>,
        left: Option<SocketAddr>,
        now: Instant,
    ) -> Result<Vec<(usize, SocketAddr)>, Ended> {
        let mut why = None;
        for (found, looked) in self.found.iter_mut().zip(looked) {
            match looked {
                Ok(addresses) => *found = addresses,
                Err(reason) => why = Some(reason),
            }
        }
        self.failed.retain(|_, since| now.saturating_duration_since(*since) < FAILED);
        let found = self.found.iter().enumerate();
        let mut places: Vec<_> = found.flat_map(|(url, all)| all.iter().map(move |it| (url, *it))).collect();
        if places.is_empty() {
            return Err(nowhere(why.as_deref().unwrap_or("no name of it has an address")));
        }
        // Two names may have the same address.
        places.sort_unstable_by_key(|(url, address)| (*address, *url));
        places.dedup_by_key(|(_, address)| *address);
        fastrand::shuffle(&mut places);
        // Popped from the end: first those without failures, then the one that failed longest ago, last the one that
        // sent this proxy away.
        places.sort_by_key(|(_, address)| {
            let failed = self.failed.get(address);
            std::cmp::Reverse((Some(*address) == left, failed.copied()))
        });
        Ok(places)
    }
}

fn nowhere(why: &str) -> Ended {
    Ended::Nowhere(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn known(urls: usize) -> Known {
        Known { found: vec![Vec::new(); urls], failed: HashMap::new() }
    }

    /// Ports in the order in which they are tried.
    fn order(known: &mut Known, ports: &[u16], left: Option<u16>, now: Instant) -> Vec<u16> {
        let looked = vec![Ok(ports.iter().map(|port| at(*port)).collect())];
        let places = known.places(looked, left.map(at), now).unwrap();
        places.into_iter().rev().map(|(_, address)| address.port()).collect()
    }

    #[test]
    fn the_order_of_replicas_is_random_and_complete() {
        let (mut known, now) = (known(1), clock::now());
        let mut first = [0; 3];
        for _ in 0..300 {
            let mut tried = order(&mut known, &[1, 2, 3], None, now);
            first[usize::from(tried[0]) - 1] += 1;
            tried.sort_unstable();
            assert_eq!(tried, [1, 2, 3]);
        }
        assert!(first.iter().all(|times| *times > 50), "{first:?}");
    }

    #[test]
    fn failed_replica_comes_after_others_and_the_left_one_last() {
        let (mut known, now) = (known(1), clock::now());
        known.failed.insert(at(1), now);
        known.failed.insert(at(2), now + Duration::from_secs(1));
        let later = now + Duration::from_secs(2);
        assert_eq!(order(&mut known, &[1, 2, 3, 4], Some(3), later), [4, 1, 2, 3]);
        assert_eq!(order(&mut known, &[2], Some(2), later), [2], "there is nobody else");
        order(&mut known, &[1], None, now + FAILED);
        assert_eq!(known.failed.keys().collect::<Vec<_>>(), [&at(2)], "it is long ago");
    }

    #[test]
    fn a_name_that_nobody_looks_up_has_the_addresses_that_it_had() {
        let (mut known, now) = (known(2), clock::now());
        let gone = || Err("the DNS is gone".to_owned());
        let nobody = known.places(vec![gone(), gone()], None, now).unwrap_err();
        assert!(matches!(nobody, Ended::Nowhere(why) if why == "the DNS is gone"));
        known.places(vec![Ok(vec![at(1), at(2)]), Ok(vec![at(3)])], None, now).unwrap();
        let mut all = known.places(vec![gone(), Ok(vec![at(2), at(4)])], None, now).unwrap();
        all.sort_unstable_by_key(|(_, address)| *address);
        assert_eq!(
            all.iter().map(|(_, it)| it.port()).collect::<Vec<_>>(),
            [1, 2, 4],
            "and each is tried once"
        );
    }
}
