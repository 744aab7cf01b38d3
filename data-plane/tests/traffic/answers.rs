//! Headers of answers: what is taken out of those of backends, and what is put into all of them.

use data_plane::local::Limits;
use shared::policy::{Header, HeaderList, LocationPolicy, TextList};
use shared::resource::{Resource, SETTINGS_KEY, Settings};

use super::harness::*;

fn proxy(origin: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let settings = Settings { defaults, ..Settings::default() };
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(settings))]);
    proxy
}

/// One that tells more of itself than it should.
fn talkative() -> Origin {
    Origin::new(|_| {
        let told = "Server: own\r\nx-powered-by: php\r\nX-Open: 1\r\nX-One: own\r\nStrict-Transport-Security: max-age=5";
        (
            format!("HTTP/1.1 200 OK\r\n{told}\r\nX-Accel-Expires: 0\r\nContent-Length: 0\r\n\r\n")
                .into_bytes(),
            true,
        )
    })
}

#[test]
fn what_is_hidden_goes_and_the_rest_stays() {
    let origin = talkative();
    let hide_headers = Some(TextList { values: vec!["X-Powered-By".into(), "x-none".into()] });
    let proxy = proxy(&origin, LocationPolicy { hide_headers, ..LocationPolicy::default() });
    let response = Client::new(proxy.http).get("/");
    for (name, values) in [
        ("x-powered-by", &[][..]),
        ("server", &[]),
        ("x-accel-expires", &[]),
        ("x-open", &["1"]),
        // Over a plain connection nothing is said of it here.
        ("strict-transport-security", &["max-age=5"]),
    ] {
        assert_eq!(response.all(name), values, "{name}");
    }
}

#[test]
fn the_server_is_told_as_the_fleet_says() {
    let origin = talkative();
    for (tokens, backends, expected) in
        [(None, Some(true), &[][..]), (Some(true), None, &["firth"]), (Some(true), Some(true), &["own"])]
    {
        let said = LocationPolicy {
            server_tokens: tokens,
            allow_backend_server_header: backends,
            ..LocationPolicy::default()
        };
        let proxy = proxy(&origin, said);
        assert_eq!(Client::new(proxy.http).get("/").all("server"), expected, "{tokens:?} {backends:?}");
    }
}

#[test]
fn added_headers_are_on_every_answer_in_place_of_the_backend_s() {
    let origin = talkative();
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers =
        vec![header("X-One", "1"), header("X-Told", "$request_method of $host"), header("X-Id", "$req_id")];
    let add_headers = Some(HeaderList { headers });
    let proxy = proxy(&origin, LocationPolicy { add_headers, ..LocationPolicy::default() });
    let mut client = Client::new(proxy.http);
    let ours = client.get("/");
    assert_eq!((ours.status, ours.all("x-one")), (200, vec!["1"]));
    assert_eq!(ours.all("x-id"), origin.seen()[0].all("x-request-id"));
    let nobodys = client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
    assert_eq!((nobodys.status, nobodys.all("x-one")), (404, vec!["1"]));
    assert_eq!(nobodys.all("x-told"), ["GET of b.test"]);
    assert_eq!(nobodys.all("x-id")[0].len(), 32);
}
