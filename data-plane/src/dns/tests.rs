//! Tests against a scripted DNS server on real sockets.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use domain::rdata::Cname;
use domain::resolv::stub::conf::{ServerConf, Transport};
use shared::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::*;

/// The server's response to a query.
#[derive(Clone, Debug)]
pub(crate) enum DnsAnswer {
    Addresses(Vec<IpAddr>, u32),
    /// A CNAME, followed by its addresses.
    Alias(&'static str, u32),
    Code(Rcode),
    /// An address of which this many bytes are missing.
    Cut(usize),
    /// No response.
    Silence,
}

/// By name, without a trailing dot. Other names do not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    answers: HashMap<String, DnsAnswer>,
    /// UDP responses are truncated.
    truncates: bool,
    asked: Vec<(String, Rtype)>,
}

impl Script {
    fn with<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, name: &str, answer: DnsAnswer) {
        self.with(|it| it.answers.insert(name.to_owned(), answer));
    }

    pub(crate) fn addresses(&self, name: &str, last: &[u8], ttl: u32) {
        let addresses = last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
        self.set(name, DnsAnswer::Addresses(addresses, ttl));
    }

    /// Truncates the answers over UDP: the whole ones come over TCP.
    pub(crate) fn truncates(&self) {
        self.with(|it| it.truncates = true);
    }

    /// How often a name was queried.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.with(|it| it.asked.iter().filter(|(asked, _)| asked == name).count())
    }

    fn answer(&self, question: &[u8], over_udp: bool) -> Option<Vec<u8>> {
        let message = Message::from_octets(question).unwrap();
        let query = message.sole_question().unwrap();
        let name = query.qname().to_string();
        let (mut scripted, truncates) = self.with(|it| {
            it.asked.push((name.clone(), query.qtype()));
            (it.answers.get(&name).cloned(), it.truncates && over_udp)
        });
        let code = match scripted {
            Some(DnsAnswer::Silence) => return None,
            Some(DnsAnswer::Code(code)) => code,
            Some(_) => Rcode::NOERROR,
            None => Rcode::NXDOMAIN,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(&message, code).unwrap();
        answer.header_mut().set_ra(true);
        answer.header_mut().set_tc(truncates);
        let mut owner = name;
        while let Some(DnsAnswer::Alias(to, ttl)) = scripted {
            let data = Cname::new(Name::vec_from_str(to).unwrap());
            answer.push((Name::vec_from_str(&owner).unwrap(), ttl, data)).unwrap();
            owner = to.to_owned();
            scripted = self.with(|it| it.answers.get(&owner).cloned());
        }
        if let Some(DnsAnswer::Cut(count)) = scripted {
            answer.push((Name::vec_from_str(&owner).unwrap(), 30, A::new(Ipv4Addr::LOCALHOST))).unwrap();
            let mut bytes = answer.finish();
            bytes.truncate(bytes.len() - count);
            return Some(bytes);
        }
        if let Some(DnsAnswer::Addresses(addresses, ttl)) = scripted.filter(|_| !truncates) {
            let owner = Name::vec_from_str(&owner).unwrap();
            for ip in addresses {
                match (ip, query.qtype()) {
                    (IpAddr::V4(ip), Rtype::A) => answer.push((&owner, ttl, A::new(ip))).unwrap(),
                    (IpAddr::V6(ip), Rtype::AAAA) => answer.push((&owner, ttl, Aaaa::new(ip))).unwrap(),
                    _ => {}
                }
            }
        }
        Some(answer.finish())
    }
}

/// A server on one port, over UDP and TCP.
pub(crate) struct Dns {
    pub(crate) script: Script,
    port: u16,
    tasks: Vec<JoinHandle<()>>,
}

impl Dns {
    #[allow(clippy::disallowed_methods, reason = "the server of a test")]
    pub(crate) async fn start() -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let port = udp.local_addr().unwrap().port();
        let script = Script::default();
        let over_udp = script.clone();
        let over_tcp = script.clone();
        let tasks = vec![
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                loop {
                    let (count, peer) = udp.recv_from(&mut bytes).await.unwrap();
                    if let Some(answer) = over_udp.answer(&bytes[..count], true) {
                        udp.send_to(&answer, peer).await.unwrap();
                    }
                }
            }),
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = tcp.accept().await.unwrap();
                    while let Ok(count) = stream.read_u16().await {
                        let mut bytes = vec![0; count.into()];
                        stream.read_exact(&mut bytes).await.unwrap();
                        if let Some(answer) = over_tcp.answer(&bytes, false) {
                            stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                            stream.write_all(&answer).await.unwrap();
                        }
                    }
                }
            }),
        ];
        Self { script, port, tasks }
    }

    /// A resolver that uses it, with this search list.
    fn resolver(&self, search: &[&str], ndots: usize) -> Resolver {
        resolver(&[self.port], search, ndots)
    }

    /// Only this server, for the whole test.
    pub(crate) fn servers(&self) -> Servers {
        let looked = Some(clock::now() + Duration::from_secs(3600));
        let file = Watched { looked, ..Watched::new("/nonexistent".into()) };
        Servers { file, resolver: Ok(Rc::new(self.resolver(&[], 1))) }
    }
}

/// A resolver that uses the servers at these loopback ports.
fn resolver(ports: &[u16], search: &[&str], ndots: usize) -> Resolver {
    let mut conf = ResolvConf::new();
    for port in ports {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        conf.servers.push(ServerConf::new(address, Transport::UdpTcp));
    }
    for domain in search {
        conf.options.search.push(domain.parse().unwrap());
    }
    conf.options.ndots = ndots;
    conf.options.timeout = Duration::from_millis(300);
    Resolver::new(&conf)
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn found(addresses: &[&str], ttl: u64) -> Outcome {
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    Ok(Answer::Found { addresses, ttl: Duration::from_secs(ttl) })
}

#[tokio::test]
async fn the_first_candidate_with_addresses_wins() {
    let dns = Dns::start().await;
    dns.script.addresses("far.test", &[1, 2], 30);
    dns.script.addresses("near.ns.cluster.test", &[3], 5);
    dns.script.addresses("far.test.cluster.test", &[4], 5);
    dns.script.set("six.test", DnsAnswer::Addresses(vec!["2001:db8::6".parse().unwrap()], 9));
    dns.script.set("empty.test", DnsAnswer::Addresses(vec![], 9));
    dns.script.set("alias.test", DnsAnswer::Alias("six.test", 4));
    let resolver = dns.resolver(&["ns.cluster.test", "cluster.test"], 2);
    for (name, expected) in [
        ("far.test.", found(&["10.0.0.1", "10.0.0.2"], 30)),
        ("far.test", found(&["10.0.0.4"], 5)),
        ("near", found(&["10.0.0.3"], 5)),
        ("near.ns.cluster.test", found(&["10.0.0.3"], 5)),
        ("six.test.", found(&["2001:db8::6"], 9)),
        ("alias.test.", found(&["2001:db8::6"], 4)),
        ("empty.test.", Ok(Answer::Nothing)),
        ("nowhere.test", Ok(Answer::Nothing)),
    ] {
        assert_eq!(resolver.ask(name).await, expected, "{name}");
    }
    assert_eq!(dns.script.asked("near"), 0, "found before");
}

#[test]
fn names_are_completed_as_resolv_conf_says() {
    let search = ["ns.svc.cluster.local", "cluster.local"].map(str::to_owned);
    for (name, ndots, expected) in [
        ("a.b.", 5, &["a.b."] as &[_]),
        ("a.b", 5, &["a.b.ns.svc.cluster.local.", "a.b.cluster.local.", "a.b."]),
        ("a.b", 1, &["a.b.", "a.b.ns.svc.cluster.local.", "a.b.cluster.local."]),
        ("a", 1, &["a.ns.svc.cluster.local.", "a.cluster.local.", "a."]),
    ] {
        assert_eq!(candidates(name, &search, ndots), expected, "{name} {ndots}");
    }
}

#[tokio::test]
async fn another_server_is_asked_where_one_does_not_know() {
    let (mute, failing, knows) = (Dns::start().await, Dns::start().await, Dns::start().await);
    mute.script.set("far.test", DnsAnswer::Silence);
    failing.script.set("far.test", DnsAnswer::Code(Rcode::SERVFAIL));
    knows.script.addresses("far.test", &[1], 30);
    let resolver = resolver(&[mute.port, failing.port, knows.port], &[], 1);
    for _ in 0..3 {
        assert_eq!(resolver.ask("far.test").await, found(&["10.0.0.1"], 30));
    }
    assert_eq!(failing.script.asked("far.test"), 1, "who knew is asked first");
}

#[tokio::test]
async fn a_failure_is_told_from_a_name_that_does_not_exist() {
    let dns = Dns::start().await;
    let resolver = dns.resolver(&["cluster.test"], 5);
    dns.script.set("a.test", DnsAnswer::Code(Rcode::SERVFAIL));
    assert!(resolver.ask("a.test").await.is_err());
    dns.script.set("a.test", DnsAnswer::Code(Rcode::REFUSED));
    assert!(resolver.ask("a.test").await.is_err());
    // One of the candidates could not be resolved, the last one does not exist.
    dns.script.set("b.test.cluster.test", DnsAnswer::Silence);
    assert!(resolver.ask("b.test").await.is_err());
    assert!(dns.script.asked("b.test") > 0);
    assert_eq!(resolver.ask("c.test").await, Ok(Answer::Nothing));
}

/// It would take away addresses that are in use.
#[tokio::test]
async fn an_answer_that_cannot_be_read_does_not_say_that_there_is_no_address() {
    let dns = Dns::start().await;
    for missing in [1, 4, 10] {
        dns.script.set("cut.test", DnsAnswer::Cut(missing));
        assert!(dns.resolver(&[], 1).ask("cut.test.").await.is_err(), "without {missing} bytes");
    }
    // An address of three bytes.
    let mut message = MessageBuilder::new_vec().question();
    message.push((&Name::vec_from_str("a.test").unwrap(), Rtype::A)).unwrap();
    let mut message = message.answer();
    message.push((&Name::vec_from_str("a.test").unwrap(), 30, A::new(Ipv4Addr::LOCALHOST))).unwrap();
    let mut bytes = message.finish();
    bytes.pop();
    let length = bytes.len() - 4;
    bytes[length] = 3;
    assert_eq!(addresses(&bytes), Answer::Failed);
    assert_eq!(addresses(b"?"), Answer::Failed);
}

/// Whoever answers may add what nobody asked for.
#[test]
fn addresses_of_other_names_are_left_out() {
    let name = |text: &str| Name::vec_from_str(text).unwrap();
    let [ours, other] = [1, 9].map(|last| Ipv4Addr::new(192, 0, 2, last));
    let mut message = MessageBuilder::new_vec().question();
    message.push((&name("a.test"), Rtype::A)).unwrap();
    let mut message = message.answer();
    message.push((&name("other.test"), 5, A::new(other))).unwrap();
    message.push((&name("a.test"), 30, Cname::new(name("b.test")))).unwrap();
    message.push((&name("b.test"), 20, A::new(ours))).unwrap();
    message.push((&name("a.test"), 5, A::new(other))).unwrap();
    let expected = Answer::Found { addresses: vec![ours.into()], ttl: Duration::from_secs(20) };
    assert_eq!(addresses(&message.finish()), expected);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_fetched_over_tcp() {
    let dns = Dns::start().await;
    let last: Vec<u8> = (1..=200).collect();
    dns.script.addresses("many.test", &last, 30);
    dns.script.truncates();
    let Ok(Answer::Found { addresses, .. }) = dns.resolver(&[], 1).ask("many.test.").await else {
        panic!("no answer")
    };
    assert_eq!(addresses.len(), 200);
}

#[tokio::test]
async fn resolv_conf_is_read_again_when_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    let mut servers = Servers::of_file(file.clone());
    let begun = clock::now();
    let now = |looks: u32| begun + LOOK * looks;
    let shown = |servers: &mut Servers, looks| format!("{:?}", servers.current(now(looks)).unwrap());
    assert!(!shown(&mut servers, 0).contains("one.test"), "the server of this machine");
    fs::write(&file, "nameserver 127.0.0.1\nsearch one.test\noptions ndots:3\n").unwrap();
    assert!(!shown(&mut servers, 0).contains("one.test"), "not looked at all the time");
    let text = shown(&mut servers, 1);
    assert!(text.contains("one.test") && text.contains("ndots: 3"), "{text}");
    let first = servers.current(now(1)).unwrap();
    assert!(Rc::ptr_eq(&first, &servers.current(now(2)).unwrap()), "nothing was written");
    let written = fs::File::options().write(true).open(&file).unwrap();
    fs::write(&file, "search two.test\n").unwrap();
    written.set_modified(clock::wall() + Duration::from_secs(7)).unwrap();
    assert!(shown(&mut servers, 3).contains("two.test"));
}
