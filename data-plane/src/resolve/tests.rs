//! Against a DNS server of real sockets that does as it is told.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use domain::rdata::Cname;
use domain::resolv::stub::conf::{ServerConf, Transport};
use shared::resource::{Backend, ExternalName, Resource};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::*;
use crate::table::world;

/// What the server says to a question.
#[derive(Clone, Debug)]
enum Says {
    Addresses(Vec<IpAddr>, u32),
    /// Another name, whose addresses follow.
    Alias(&'static str, u32),
    Code(Rcode),
    /// Nothing at all.
    Silence,
}

/// By name, without the dot at its end. What is not there does not exist.
#[derive(Clone, Debug, Default)]
struct Script(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    says: HashMap<String, Says>,
    /// UDP answers are cut.
    truncates: bool,
    asked: Vec<(String, Rtype)>,
}

impl Script {
    fn with<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn say(&self, name: &str, says: Says) {
        self.with(|it| it.says.insert(name.to_owned(), says));
    }

    fn addresses(&self, name: &str, last: &[u8], ttl: u32) {
        let addresses = last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
        self.say(name, Says::Addresses(addresses, ttl));
    }

    /// How often it was asked for a name.
    fn asked(&self, name: &str) -> usize {
        self.with(|it| it.asked.iter().filter(|(asked, _)| asked == name).count())
    }

    fn answer(&self, question: &[u8], over_udp: bool) -> Option<Vec<u8>> {
        let message = Message::from_octets(question).unwrap();
        let query = message.sole_question().unwrap();
        let name = query.qname().to_string();
        let (mut says, truncates) = self.with(|it| {
            it.asked.push((name.clone(), query.qtype()));
            (it.says.get(&name).cloned(), it.truncates && over_udp)
        });
        let code = match says {
            Some(Says::Silence) => return None,
            Some(Says::Code(code)) => code,
            Some(_) => Rcode::NOERROR,
            None => Rcode::NXDOMAIN,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(&message, code).unwrap();
        answer.header_mut().set_ra(true);
        answer.header_mut().set_tc(truncates);
        let mut owner = name;
        while let Some(Says::Alias(to, ttl)) = says {
            let data = Cname::new(Name::vec_from_str(to).unwrap());
            answer.push((Name::vec_from_str(&owner).unwrap(), ttl, data)).unwrap();
            owner = to.to_owned();
            says = self.with(|it| it.says.get(&owner).cloned());
        }
        if let Some(Says::Addresses(addresses, ttl)) = says.filter(|_| !truncates) {
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

/// A server on one port of UDP and TCP.
struct Dns {
    script: Script,
    port: u16,
    tasks: Vec<JoinHandle<()>>,
}

impl Dns {
    #[allow(clippy::disallowed_methods, reason = "the server of a test")]
    async fn start() -> Self {
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

    /// Who asks it, with this search list.
    fn resolver(&self, search: &[&str], ndots: usize) -> Resolver {
        resolver(&[self.port], search, ndots)
    }
}

/// Who asks the servers at these ports of loopback.
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
    dns.script.say("six.test", Says::Addresses(vec!["2001:db8::6".parse().unwrap()], 9));
    dns.script.say("empty.test", Says::Addresses(vec![], 9));
    dns.script.say("alias.test", Says::Alias("six.test", 4));
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
    mute.script.say("far.test", Says::Silence);
    failing.script.say("far.test", Says::Code(Rcode::SERVFAIL));
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
    dns.script.say("a.test", Says::Code(Rcode::SERVFAIL));
    assert!(resolver.ask("a.test").await.is_err());
    dns.script.say("a.test", Says::Code(Rcode::REFUSED));
    assert!(resolver.ask("a.test").await.is_err());
    // One of the candidates could not be asked, the last one is not there.
    dns.script.say("b.test.cluster.test", Says::Silence);
    assert!(resolver.ask("b.test").await.is_err());
    assert!(dns.script.asked("b.test") > 0);
    assert_eq!(resolver.ask("c.test").await, Ok(Answer::Nothing));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_fetched_over_tcp() {
    let dns = Dns::start().await;
    let last: Vec<u8> = (1..=200).collect();
    dns.script.addresses("many.test", &last, 30);
    dns.script.with(|it| it.truncates = true);
    let Ok(Answer::Found { addresses, .. }) = dns.resolver(&[], 1).ask("many.test.").await else {
        panic!("no answer")
    };
    assert_eq!(addresses.len(), 200);
}

/// A writer with a path to each of these names.
fn writer(names: &[&str]) -> RefCell<Writer> {
    let mut writer = Writer::new();
    let mut up = vec![world::host("a.test", None)];
    let paths: Vec<_> = names.iter().map(|name| (format!("/{name}"), format!("ns/{name}/80"))).collect();
    let paths: Vec<_> = paths.iter().map(|(path, backend)| (path.as_str(), backend.as_str())).collect();
    up.push(world::route("ingress/ns/i/a.test", &paths));
    up.extend(names.iter().map(|name| {
        let external = Some(ExternalName { name: format!("{name}.test."), port: 80, local: false });
        let backend = Backend { external, ..Backend::default() };
        world::entry(&format!("ns/{name}/80"), Resource::Backend(backend))
    }));
    writer.replace_config(up);
    RefCell::new(writer)
}

/// The endpoints behind a path, their ids and addresses.
fn endpoints(writer: &RefCell<Writer>, name: &str) -> Vec<(u64, SocketAddr)> {
    let table = writer.borrow().tables().current();
    let entry = table.host("a.test").unwrap();
    let paths = entry.paths();
    let path = paths.iter().find(|it| *it.entry.declared == *format!("/{name}")).unwrap();
    let crate::table::Action::Backend(upstream) = &path.entry.action else { panic!("{name}") };
    upstream.cell.endpoints().list.iter().map(|it| (it.id, it.address)).collect()
}

fn last(writer: &RefCell<Writer>, name: &str) -> Vec<u8> {
    let octet = |(_, address): (u64, SocketAddr)| match address.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => panic!("IPv4 alone"),
    };
    endpoints(writer, name).into_iter().map(octet).collect()
}

/// Looks until it is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    time::timeout(Duration::from_secs(20), looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Does this while names are kept.
async fn kept(dns: &Dns, writer: &RefCell<Writer>, doing: impl Future<Output = ()>) {
    let mut servers = Servers::of_file("/nonexistent".into());
    servers.resolver = Ok(Rc::new(dns.resolver(&[], 1)));
    servers.looked = Some(clock::now() + Duration::from_secs(3600));
    let names = Names::by(servers);
    tokio::select! {
        never = names.keep(writer) => match never {},
        () = doing => {}
    }
}

#[tokio::test]
async fn a_name_is_followed_and_keeps_the_endpoints_that_stay() {
    let dns = Dns::start().await;
    dns.script.addresses("far.test", &[1, 2], 0);
    let writer = writer(&["far"]);
    kept(&dns, &writer, async {
        until("answered", || last(&writer, "far") == [1, 2]).await;
        let before = endpoints(&writer, "far");
        dns.script.addresses("far.test", &[3, 2], 0);
        until("changed", || last(&writer, "far") == [2, 3]).await;
        assert_eq!(endpoints(&writer, "far")[0], before[1], "what stays is the same one");
        let asked = dns.script.asked("far.test");
        dns.script.say("far.test", Says::Silence);
        until("asked in vain", || dns.script.asked("far.test") >= asked + 3).await;
        assert_eq!(last(&writer, "far"), [2, 3], "silence is no answer");
        dns.script.say("far.test", Says::Code(Rcode::SERVFAIL));
        let asked = dns.script.asked("far.test");
        until("asked in vain", || dns.script.asked("far.test") >= asked + 2).await;
        assert_eq!(last(&writer, "far"), [2, 3], "nor is a failure");
        dns.script.say("far.test", Says::Code(Rcode::NXDOMAIN));
        until("gone", || last(&writer, "far").is_empty()).await;
        dns.script.addresses("far.test", &[4], 300);
        until("back", || last(&writer, "far") == [4]).await;
        let asked = dns.script.asked("far.test");
        time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(dns.script.asked("far.test"), asked, "its time is kept");
    })
    .await;
}

#[tokio::test]
async fn a_slow_name_holds_up_no_other() {
    let dns = Dns::start().await;
    let slow: Vec<String> = (0..100).map(|number| format!("slow{number}")).collect();
    for name in &slow {
        dns.script.say(&format!("{name}.test"), Says::Silence);
    }
    dns.script.addresses("quick.test", &[1], 0);
    let mut all: Vec<&str> = slow.iter().map(String::as_str).collect();
    all.push("quick");
    let writer = writer(&all);
    kept(&dns, &writer, async {
        until("answered", || last(&writer, "quick") == [1]).await;
        for address in 2..5 {
            dns.script.addresses("quick.test", &[address], 0);
            let begun = clock::now();
            until("followed", || last(&writer, "quick") == [address]).await;
            assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        }
    })
    .await;
}

#[tokio::test]
async fn the_first_answers_are_waited_for_and_not_for_ever() {
    let dns = Dns::start().await;
    dns.script.addresses("far.test", &[1], 30);
    dns.script.say("mute.test", Says::Silence);
    for (names, patience, is_quick) in
        [(&["far"] as &[_], 10_000, true), (&[], 10_000, true), (&["far", "mute"], 50, false)]
    {
        let writer = writer(names);
        let mut servers = Servers::of_file("/nonexistent".into());
        servers.resolver = Ok(Rc::new(dns.resolver(&[], 1)));
        servers.looked = Some(clock::now() + Duration::from_secs(3600));
        let keeper = Names::by(servers);
        let begun = clock::now();
        tokio::select! {
            never = keeper.keep(&writer) => match never {},
            () = keeper.settled(&writer, Duration::from_millis(patience)) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(writer.borrow_mut().names().is_settled(), is_quick, "{names:?}");
    }
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
