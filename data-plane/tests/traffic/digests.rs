use md5::{Digest as _, Md5};
use shared::policy::{BasicAuth, LocationPolicy};
use shared::resource::{Material, Resource, User};

use super::harness::*;

const USERS: &str = "ns/users/digest-file";
const REALM: &str = "Test area";

fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn serving(origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    let basic_auth = Some(BasicAuth { users: USERS.into(), realm: REALM.into(), digest: true });
    proxy.policies(false, &[("/x", LocationPolicy { basic_auth, ..LocationPolicy::default() })]);
    proxy.endpoints("x", &[origin.address]);
    proxy
}

fn users(proxy: &mut Proxy, users: &[(&str, &str)]) {
    let user = |(name, password): &(&str, &str)| User {
        name: format!("{name}:{REALM}"),
        hash: md5(&format!("{name}:{REALM}:{password}")),
    };
    let material = Material::Users(users.iter().map(user).collect());
    proxy.writer.apply_live(vec![entry(USERS, Resource::Material(material))], &[]);
}

/// What a client knows after a challenge.
struct Login {
    nonce: String,
    count: u32,
    /// Of the count, at least.
    digits: usize,
    /// Overrides the correct value.
    realm: &'static str,
    uri: &'static str,
    target: &'static str,
}

impl Login {
    fn of(challenge: &str) -> Self {
        let nonce = challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        Self { nonce, count: 1, digits: 8, realm: REALM, uri: "/x?a=1", target: "/x?a=1" }
    }

    fn response(&self, method: &str, pair: &str) -> String {
        let (user, password) = pair.split_once(':').unwrap();
        let hash = md5(&format!("{user}:{REALM}:{password}"));
        let Self { nonce, count, digits, uri, .. } = self;
        md5(&format!("{hash}:{nonce}:{count:0digits$x}:c1:auth:{}", md5(&format!("{method}:{uri}"))))
    }

    fn request(&self, pair: &str) -> String {
        let user = pair.split_once(':').unwrap().0;
        let Self { nonce, count, digits, realm, uri, target } = self;
        let response = self.response("GET", pair);
        format!(
            "GET {target} HTTP/1.1\r\nHost: a.test\r\nAuthorization: Digest username=\"{user}\", realm=\"{realm}\", \
             nonce=\"{nonce}\", uri=\"{uri}\", qop=auth, nc={count:0digits$x}, cnonce=\"c1\", response=\"{response}\"\r\n\r\n"
        )
    }
}

#[test]
fn digests() {
    let origin = Origin::says("in");
    let mut proxy = serving(&origin);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/x").status, 503, "nobody knows who may pass");
    users(&mut proxy, &[("alice", "secret"), ("bob", "")]);
    let asked = client.get("/x?a=1");
    let challenge = asked.all("www-authenticate")[0].to_owned();
    assert_eq!(asked.status, 401);
    assert!(challenge.starts_with("Digest algorithm=MD5, qop=\"auth\", realm=\"Test area\", nonce=\""));
    assert!(!challenge.contains("stale"));
    let mut login = Login::of(&challenge);
    for (pair, status) in
        [("alice:wrong", 401), ("bob:secret", 401), ("eve:secret", 401), ("alice:secret", 200)]
    {
        let answer = client.ask(&login.request(pair));
        assert_eq!(answer.status, status, "{pair}");
        assert!(answer.all("www-authenticate").iter().all(|it| !it.contains("stale")));
    }
    login.count = 2;
    let answer = client.ask(&login.request("bob:"));
    let proof = login.response("", "bob:");
    assert_eq!(
        (answer.status, answer.all("authentication-info")),
        (200, vec![&*format!("qop=auth, rspauth=\"{proof}\", cnonce=\"c1\", nc=00000002")])
    );
    // The same nonce count again, and another proxy's nonce: the client may retry without asking its user.
    for nonce in [login.nonce.clone(), "0".repeat(64)] {
        let replay = Login { nonce, ..Login::of(&challenge) };
        let refused = client.ask(&replay.request("alice:secret"));
        assert_eq!(refused.status, 401);
        let challenge = refused.all("www-authenticate")[0].to_owned();
        assert!(challenge.ends_with(", stale=true"), "{challenge}");
        assert_eq!(client.ask(&Login::of(&challenge).request("alice:secret")).status, 200);
    }
    login.count = 3;
    for (realm, uri) in [("Other", login.uri), (REALM, "/x?a=2"), (REALM, "http://a.test/x?a=1")] {
        let other = Login { realm, uri, nonce: login.nonce.clone(), ..login };
        assert_eq!(client.ask(&other.request("alice:secret")).status, 401, "{realm} {uri}");
    }
    let plain = "GET /x?a=1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n";
    assert_eq!(client.ask(plain).status, 401);
    assert_eq!(client.ask(&login.request("alice:secret")).status, 200, "what was refused used up nothing");
    assert!(origin.seen().iter().all(|seen| seen.all("authorization").is_empty()), "none of its business");
    users(&mut proxy, &[("bob", "")]);
    login.count = 4;
    assert_eq!(client.ask(&login.request("alice:secret")).status, 401, "taken off the list");
    drop(client);
    let log = proxy.stop(std::time::Duration::ZERO, PATIENCE);
    assert!(log.contains(" - alice ["), "{log}");
}

#[test]
fn a_digest_is_of_its_request_however_that_is_written() {
    const ABSOLUTE: &str = "http://a.test/x?a=1";
    let origin = Origin::says("in");
    let mut proxy = serving(&origin);
    users(&mut proxy, &[("alice", "secret")]);
    let mut client = Client::new(proxy.http);
    let mut login = Login::of(client.get("/x?a=1").all("www-authenticate")[0]);
    for (count, (target, uri, status)) in (1..).zip([
        (ABSOLUTE, "/x?a=1", 200),
        (ABSOLUTE, ABSOLUTE, 200),
        (ABSOLUTE, "/x?a=2", 401),
        (ABSOLUTE, "http://b.test/x?a=1", 401),
        ("/x?a=1", "/x", 200),
        ("/x?a=1", "/", 401),
        ("/x?a=1", "/x?a", 401),
        ("/x", "/x?a=1", 401),
    ]) {
        login = Login { target, uri, count, ..login };
        assert_eq!(client.ask(&login.request("alice:secret")).status, status, "{target} {uri}");
    }
}

/// RFC 7616 section 3.4: nobody else would know how the count was written when its digest was made.
#[test]
fn a_count_has_eight_digits() {
    let origin = Origin::says("in");
    let mut proxy = serving(&origin);
    users(&mut proxy, &[("alice", "secret")]);
    let mut client = Client::new(proxy.http);
    let challenge = client.get("/x?a=1").all("www-authenticate")[0].to_owned();
    for (digits, status) in [(1, 401), (7, 401), (9, 401), (8, 200)] {
        let login = Login { digits, ..Login::of(&challenge) };
        assert_eq!(client.ask(&login.request("alice:secret")).status, status, "{digits}");
    }
}

#[test]
fn digest_auth_ignores_a_client_after_five_wrong_passwords() {
    let origin = Origin::says("in");
    let mut proxy = serving(&origin);
    users(&mut proxy, &[("alice", "secret")]);
    let mut client = Client::new(proxy.http);
    let login = Login::of(client.get("/x?a=1").all("www-authenticate")[0]);
    let old = Login { nonce: "0".repeat(64), ..Login::of(client.get("/x").all("www-authenticate")[0]) };
    let plain = "GET /x?a=1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: Digest username=\"alice\"\r\n\r\n";
    for number in 0..6 {
        for request in [
            plain.to_owned(),
            old.request("alice:secret"),
            "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
        ] {
            assert_eq!(client.ask(&request).all("www-authenticate").len(), 1, "{number}: no wrong try");
        }
    }
    for number in 0..5 {
        let answer = client.ask(&login.request("alice:guess"));
        assert_eq!((answer.status, answer.all("www-authenticate").len()), (401, 1), "{number}");
    }
    for request in [login.request("alice:secret"), login.request("alice:guess"), plain.to_owned()] {
        let answer = client.ask(&request);
        assert_eq!((answer.status, answer.all("www-authenticate")), (401, vec![]), "{request}");
    }
    let mut neighbour = Client::from(std::net::Ipv4Addr::new(127, 0, 0, 9), proxy.http);
    assert_eq!(neighbour.ask(&login.request("alice:secret")).status, 200, "nobody else is kept out");
    assert_eq!(origin.seen().len(), 1);
}
