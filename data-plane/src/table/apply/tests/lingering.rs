//! What is served although it left LIVE, for those who store what is served.

use shared::policy::BasicAuth;
use shared::resource::{Certificate, Chain, Material, User};

use super::*;

/// Names of what lingers.
fn lingering(writer: &Writer) -> Vec<String> {
    writer.lingering().map(|entry| entry.key.to_string()).collect()
}

fn users(names: &[&str]) -> Arc<Entry> {
    let user = |name: &&str| User { name: (*name).into(), hash: "{PLAIN}x".into() };
    entry("ns/users", Resource::Material(Material::Users(names.iter().map(user).collect())))
}

fn protected(path: &str) -> Arc<Entry> {
    let basic_auth = Some(BasicAuth { users: "ns/users".into(), ..BasicAuth::default() });
    let policy = LocationPolicy { basic_auth, ..LocationPolicy::default() };
    let backend = Some("ns/s1/80".into());
    let paths = vec![Path { path: path.into(), kind: PathType::Prefix, backend, after_exact: false }];
    entry("ingress/ns/i/a.test", Resource::Route(Route { paths, policy, ..Route::default() }))
}

/// How many certificates clients are shown, and the users of the path.
fn shown(writer: &Writer) -> (usize, bool) {
    let table = writer.tables().current();
    let certificates = table.certificate(Some("a.test")).unwrap().shown().cert.len();
    (certificates, has_users(writer))
}

fn has_users(writer: &Writer) -> bool {
    let table = writer.tables().current();
    let host = table.host("a.test").unwrap();
    let Match::Path(path) = host.route(b"/", &shared::pattern::Steps::new()) else { panic!("no path") };
    path.users().and_then(|users| users.get()).is_some()
}

/// A slice, a certificate with its chain, and users.
#[test]
fn what_config_still_refers_to_lingers() {
    let chain = Chain { certificates: vec![certificate(&["ca.test"]).leaf] };
    let leaf = Certificate { chain: Some(chain.key()), ..certificate(&["a.test"]) };
    let live = vec![
        slice("ns/e1", "ns/s1", &[1]),
        slice("ns/e2", "ns/s2", &[2]),
        entry("ns/a", Resource::Certificate(leaf)),
        entry(&chain.key(), Resource::Chain(chain)),
        users(&["ann"]),
    ];
    let mut writer = Writer::new();
    writer.apply_live(live.clone(), &[]);
    writer.replace_config(vec![host("a.test", Some(&["ns/a"])), protected("/"), backend("ns/s1/80")]);
    let mut reader = writer.tables().reader();
    reader.load();
    assert_eq!(shown(&writer), (2, true));
    let removed: Vec<_> = live.iter().map(|it| Removal { key: it.key.clone(), gone: false }).collect();
    writer.apply_live(Vec::new(), &removed);
    assert!(writer.has(Lane::Live).is_empty());
    let mut stored = writer.has(Lane::Live).clone();
    stored.extend(writer.lingering().cloned());
    let unused = key(Kind::Endpoints, "ns/e2");
    assert!(stored.get(&unused).is_none(), "no table names it");
    assert_eq!(stored.len() + 1, live.len(), "{:?}", lingering(&writer));

    let mut other = Writer::new();
    other.apply(other.first(Lane::Live, stored));
    other.apply(other.first(Lane::Config, writer.has(Lane::Config).clone()));
    assert_eq!(dump(&other.tables().current()), dump(&writer.tables().current()));
    assert_eq!(shown(&other), shown(&writer));

    // It comes again, with other contents: that is what the proxy has.
    writer.apply_live(vec![users(&["bob"])], &[]);
    assert_eq!(writer.lingering().len(), 3);
    writer.apply_live(Vec::new(), &[gone(&live[0].key)]);
    assert_eq!(writer.lingering().len(), 2, "one that is deleted is not served");
    writer.replace_config(vec![host("a.test", None)]);
    reader.load();
    writer.collect();
    assert_eq!(lingering(&writer), Vec::<String>::new(), "nobody uses it any more");
}

/// What a full sync lacks is in use until that sync's CONFIG is applied, and nothing is stored until then.
#[test]
fn what_a_full_sync_lacks_is_not_told() {
    let mut writer = two_hosts();
    writer.apply_live(Vec::new(), &[unreferred(Kind::Endpoints, "ns/e1")]);
    assert_eq!(lingering(&writer), ["endpoints ns/e1"]);
    writer.apply(writer.live_of(Vec::new(), |_| false));
    assert_eq!(lingering(&writer), ["endpoints ns/e1"]);
    assert_eq!(endpoints(&writer, "b.test"), [2]);
}

/// A tunnel owns the cell that the newest table does not name.
#[test]
fn what_a_tunnel_kept_is_not_used_where_config_leads_back() {
    let mut writer = two_hosts();
    let tunnel = action(&writer, "a.test").unwrap();
    let to = |backend| vec![route("ingress/ns/i/a.test", &[("/", backend)])];
    writer.apply_live(Vec::new(), &[unreferred(Kind::Endpoints, "ns/e1")]);
    let mark = writer.mark();
    writer.apply_config(to("ns/s2/80"), &[]);
    writer.leave(mark);
    writer.collect();
    assert_eq!(tunnel.endpoints().list.len(), 1);
    assert_eq!(lingering(&writer), ["endpoints ns/e1"], "it is in use");
    writer.apply_config(to("ns/s1/80"), &[]);
    writer.leave(mark);
    assert_eq!((endpoints(&writer, "a.test"), lingering(&writer)), (vec![], vec![]));
}

/// No certificate names a Service.
#[test]
fn a_refused_certificate_keeps_no_endpoints() {
    let mut writer = two_hosts();
    let good = entry("ns/a", Resource::Certificate(certificate(&["a.test"])));
    writer.apply_live(vec![good], &[]);
    writer.apply_config(vec![host("a.test", Some(&["ns/a"]))], &[]);
    writer.apply_live(vec![broken(Kind::Certificate, "ns/a")], &[unreferred(Kind::Endpoints, "ns/e1")]);
    assert!(writer.refused(Lane::Live).any(|(_, it)| it.serving_last_good));
    writer.leave(writer.mark());
    assert_eq!(endpoints(&writer, "a.test"), Vec::<u8>::new());
}

/// The sync before it waits for a worker that still uses an older table.
#[test]
fn what_a_sync_lacks_waits_for_its_own_config() {
    let mut writer = Writer::new();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1]), users(&["ann"])], &[]);
    writer.replace_config(vec![host("a.test", None), protected("/"), backend("ns/s1/80")]);
    let mut reader = writer.tables().reader();
    reader.load();
    writer.apply_config(vec![host("b.test", None)], &[]);
    writer.settle();
    writer.apply(writer.live_of(Vec::new(), |_| false));
    reader.load();
    writer.collect();
    assert!(has_users(&writer));
    writer.settle();
    assert!(!has_users(&writer));
}
