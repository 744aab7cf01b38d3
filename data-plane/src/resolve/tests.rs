//! Tests against a scripted DNS server on real sockets.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};

use domain::base::iana::Rcode;
use shared::resource::{Backend, ExternalName, Resource};

use super::*;
use crate::dns::tests::{Dns, DnsAnswer};
use crate::table::world;

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

/// The endpoints of a path, with ids and addresses.
fn endpoints(writer: &RefCell<Writer>, name: &str) -> Vec<(u64, SocketAddr)> {
    let table = writer.borrow().tables().current();
    let entry = table.host("a.test").unwrap();
    let paths = entry.paths();
    let path = paths.iter().find(|it| it.entry.declared() == format!("/{name}")).unwrap();
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

/// Polls until the condition holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    time::timeout(Duration::from_secs(20), looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Runs `doing` while names are kept resolved.
async fn kept(dns: &Dns, writer: &RefCell<Writer>, doing: impl Future<Output = ()>) {
    let names = Names::by(dns.servers());
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
        dns.script.set("far.test", DnsAnswer::Silence);
        until("asked in vain", || dns.script.asked("far.test") >= asked + 3).await;
        assert_eq!(last(&writer, "far"), [2, 3], "silence is no answer");
        dns.script.set("far.test", DnsAnswer::Code(Rcode::SERVFAIL));
        let asked = dns.script.asked("far.test");
        until("asked in vain", || dns.script.asked("far.test") >= asked + 2).await;
        assert_eq!(last(&writer, "far"), [2, 3], "nor is a failure");
        dns.script.set("far.test", DnsAnswer::Code(Rcode::NXDOMAIN));
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
        dns.script.set(&format!("{name}.test"), DnsAnswer::Silence);
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
    dns.script.set("mute.test", DnsAnswer::Silence);
    for (names, patience, is_quick) in
        [(&["far"] as &[_], 10_000, true), (&[], 10_000, true), (&["far", "mute"], 50, false)]
    {
        let writer = writer(names);
        let keeper = Names::by(dns.servers());
        let begun = clock::now();
        tokio::select! {
            never = keeper.keep(&writer) => match never {},
            () = keeper.settled(&writer, Duration::from_millis(patience)) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(writer.borrow_mut().names().is_settled(), is_quick, "{names:?}");
    }
}

/// At start-up, and when the control plane has sent everything soon after that.
#[tokio::test]
async fn all_who_wait_for_the_first_answers_are_told() {
    let dns = Dns::start().await;
    dns.script.addresses("far.test", &[1], 30);
    let (writer, keeper) = (writer(&["far"]), Names::by(dns.servers()));
    let begun = clock::now();
    let patience = Duration::from_secs(10);
    let both = async { tokio::join!(keeper.settled(&writer, patience), keeper.settled(&writer, patience)) };
    tokio::select! {
        never = keeper.keep(&writer) => match never {},
        ((), ()) = both => {}
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}
