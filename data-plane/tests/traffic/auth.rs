use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use data_plane::local::KnownNames;
use shared::policy::{ExternalAuth, Header, HeaderList, LocationPolicy, TextList, ToldWithin};
use shared::resource::{Host, PathType, Resource, Route};

use super::backend_tls::encrypted;
use super::harness::*;

/// An auth service that responds with a changeable status and these headers.
fn asked(fields: &'static str) -> (Origin, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let says = Arc::clone(&status);
    let origin = Origin::new(move |_| {
        let status = says.load(Ordering::SeqCst);
        (format!("HTTP/1.1 {status} Said\r\n{fields}Content-Length: 4\r\n\r\npage").into_bytes(), true)
    });
    (origin, status)
}

fn asking(auth: &Origin, change: impl Fn(&mut ExternalAuth)) -> LocationPolicy {
    let mut external =
        ExternalAuth { url: format!("http://{}/check", auth.address), ..ExternalAuth::default() };
    change(&mut external);
    LocationPolicy { external_auth: Some(external), ..LocationPolicy::default() }
}

fn serving(paths: &[(&str, LocationPolicy)], backend: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    proxy.policies(false, paths);
    for (path, _) in paths {
        proxy.endpoints(path.trim_start_matches('/'), &[backend.address]);
    }
    proxy
}

#[test]
fn the_verdict_decides() {
    let backend = Origin::says("in");
    let (auth, status) = asked("WWW-Authenticate: Bearer realm=\"x\"\r\nX-Auth: no\r\n");
    let dead = LocationPolicy {
        external_auth: Some(ExternalAuth {
            url: format!("http://{}/", refusing()),
            ..ExternalAuth::default()
        }),
        ..LocationPolicy::default()
    };
    let cut = Origin::new(|_| (b"HTTP/1.1 200".to_vec(), false));
    let proxy =
        serving(&[("/x", asking(&auth, |_| {})), ("/dead", dead), ("/cut", asking(&cut, |_| {}))], &backend);
    let mut client = Client::new(proxy.http);
    for (says, expected) in
        [(200, 200), (204, 200), (299, 200), (401, 401), (403, 403), (302, 500), (404, 500), (500, 500)]
    {
        status.store(says, Ordering::SeqCst);
        let before = backend.seen().len();
        let response = client.get("/x");
        assert_eq!(response.status, expected, "{says}");
        assert_eq!(backend.seen().len() > before, expected == 200, "{says}");
        if expected != 200 {
            assert!(!response.text().contains("page") && response.all("x-auth").is_empty());
        }
        let challenge: &[&str] = if says == 401 { &["Bearer realm=\"x\""] } else { &[] };
        assert_eq!(response.all("www-authenticate"), challenge);
    }
    let before = backend.seen().len();
    assert_eq!([client.get("/dead").status, client.get("/cut").status], [500, 500]);
    assert_eq!(backend.seen().len(), before);
}

#[test]
fn the_question_says_who_asks_for_what() {
    let backend = Origin::says("in");
    let (auth, _) = asked("X-User: alice\r\nX-Empty:\r\n");
    let policy = asking(&auth, |it| {
        it.url += "?at=$host";
        it.method = "POST".into();
        it.response_headers = vec!["X-User".into(), "X-Groups".into(), "X-Empty".into()];
        let own = |value: &str| Header { name: "X-Own".into(), value: value.into() };
        it.proxy_set_headers = vec![own("to $request_method"), own("$arg_none"), own("too")];
        let within = |name: &str, header: &str, after: &str| ToldWithin {
            name: name.into(),
            header: header.into(),
            before: "Bearer ".into(),
            after: after.into(),
        };
        it.told_within = vec![within("Authorization", "x-user", "!"), within("X-None", "x-none", "")];
    });
    let proxy = serving(&[("/x", policy)], &backend);
    let mut client = Client::new(proxy.http);
    let forged = "X-Original-URL: f\r\nX-Original-Method: f\r\nX-Forwarded-Proto: f\r\nX-Sent-From: f\r\n\
                  X-Real-IP: f\r\nX-Forwarded-For: f\r\nX-Auth-Request-Redirect: f\r\nX-User: f\r\nX-Groups: f\r\n\
                  X-Forwarded-Host: f\r\nX-Forwarded-Port: f\r\nX-Forwarded-Scheme: f\r\nX-Scheme: f\r\nX-Forwarded-Prefix: f\r\nForwarded: for=f\r\n\
                  X-Original-Host: f\r\nX-Rewrite-URL: f\r\nX-Own: f\r\nssl-client-verify: SUCCESS\r\nAuthorization: Bearer t\r\nCookie: a=b\r\n\
                  TE: trailers\r\nTrailer: f\r\nKeep-Alive: f\r\nProxy-Connection: keep-alive\r\nUpgrade: f\r\n";
    let request =
        format!("PUT /x/y?z=1 HTTP/1.1\r\nHost: a.test:80\r\n{forged}Content-Length: 4\r\n\r\nbody");
    assert_eq!(client.ask(&request).status, 200);
    let question = auth.seen().remove(0);
    assert_eq!(question.line(), "POST /check?at=a.test HTTP/1.1");
    assert!(question.body.is_empty());
    for (name, value) in [
        ("host", "127.0.0.1"),
        ("x-original-url", "http://a.test:80/x/y?z=1"),
        ("x-original-method", "PUT"),
        ("x-original-uri", "/x/y?z=1"),
        ("x-scheme", "http"),
        ("x-auth-request-redirect", "/x/y?z=1"),
        ("x-sent-from", "nginx-ingress-controller"),
        ("x-real-ip", "127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("authorization", "Bearer t"),
        ("cookie", "a=b"),
        ("connection", "close"),
    ] {
        assert_eq!(question.all(name), [value], "{name}");
    }
    assert_eq!(question.all("x-own"), ["to PUT", "too"], "nginx sends each of several");
    for name in [
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-scheme",
        "x-forwarded-prefix",
        "x-original-host",
        "x-rewrite-url",
        "forwarded",
        "content-length",
        "ssl-client-verify",
        "te",
        "trailer",
        "keep-alive",
        "proxy-connection",
        "upgrade",
    ] {
        assert!(question.all(name).is_empty(), "{name}");
    }
    let passed = backend.seen().remove(0);
    assert!(passed.all("x-empty").is_empty(), "as in nginx");
    assert_eq!((passed.line(), &*passed.body), ("PUT /x/y?z=1 HTTP/1.1", &b"body"[..]));
    assert_eq!(passed.all("x-user"), ["alice"]);
    assert!(passed.all("x-groups").is_empty(), "what the answer lacks is nobody's");
    assert_eq!(passed.all("x-request-id"), question.all("x-request-id"));
}

/// As in ingress-nginx, which sets them beside `proxy_method`.
#[test]
fn path_and_scheme_are_told_with_a_method_that_is_configured() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let paths = [("/own", asking(&auth, |it| it.method = "GET".into())), ("/usual", asking(&auth, |_| {}))];
    let proxy = serving(&paths, &backend);
    for (path, told) in [("/own", [&["/own"][..], &["http"]]), ("/usual", [&[], &[]])] {
        let forged = "X-Original-URI: f\r\nX-Scheme: f\r\n";
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{forged}\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, 200);
        let question = auth.seen().pop().unwrap();
        assert_eq!(["x-original-uri", "x-scheme"].map(|name| question.all(name)), told, "{path}");
    }
}

#[test]
fn a_service_at_an_https_url_is_asked_over_tls_by_its_name() {
    let backend = Origin::says("in");
    let (auth, names) = encrypted(|seen| match &*seen.target {
        "/yes" => ok(""),
        _ => b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let at = |path: &str| {
        let url = format!("https://localhost:{}{path}", auth.address.port());
        asking(&auth, |it| it.url.clone_from(&url))
    };
    let proxy = serving(&[("/yes", at("/yes")), ("/no", at("/no"))], &backend);
    let mut client = Client::new(proxy.http);
    assert_eq!(["/yes", "/no"].map(|path| client.get(path).status), [200, 401]);
    assert_eq!((auth.seen().len(), backend.seen().len()), (2, 1));
    assert_eq!(*names.lock().unwrap(), ["localhost"; 2].map(|name| Some(name.to_owned())));
}

/// Whatever a client sends: it can end neither the target of the auth request nor its line.
#[test]
fn variables_in_auth_url_cannot_break_out_of_the_request_line() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let policy = asking(&auth, |it| it.url += "?tenant=$http_x_tenant&path=$uri");
    let proxy = serving(&[("/x", policy)], &backend);
    let request = "GET /x/b%0Ac%C3%A9 HTTP/1.1\r\nHost: a.test\r\nX-Tenant: a HTTP/1.1\r\n\r\n";
    assert_eq!(Client::new(proxy.http).ask(request).status, 200);
    let question = auth.seen().remove(0);
    assert_eq!(question.line(), "GET /check?tenant=a%20HTTP/1.1&path=/x/b%0Ac%C3%A9 HTTP/1.1");
}

/// However a request was admitted, headers that only the auth service may set are never taken from the client.
#[test]
fn auth_response_headers_of_the_client_are_removed_without_an_auth_request() {
    let backend = Origin::says("in");
    let (auth, _) = asked("X-User: alice\r\n");
    let any = LocationPolicy {
        satisfy_any: Some(true),
        allowlist_source_range: Some(TextList { values: vec!["127.0.0.1".to_owned()] }),
        ..asking(&auth, |it| it.response_headers = vec!["X-User".into(), "X_Groups".into()])
    };
    let proxy = serving(&[("/x", any)], &backend);
    let forged = "GET /x HTTP/1.1\r\nHost: a.test\r\nx-user: root\r\nX-Other: mine\r\nX-Groups: all\r\n\r\n";
    assert_eq!(Client::new(proxy.http).ask(forged).status, 200);
    assert!(auth.seen().is_empty(), "its address was enough");
    let passed = backend.seen().remove(0);
    assert!(passed.all("x-user").is_empty() && passed.all("x-groups").is_empty(), "{}", passed.line());
    assert_eq!(passed.all("x-other"), ["mine"]);
    let other = Client::from("127.0.0.2".parse().unwrap(), proxy.http).ask(forged);
    assert_eq!(other.status, 200, "asked for");
    assert_eq!(backend.seen().remove(1).all("x-user"), ["alice"]);
}

#[test]
fn clients_are_sent_to_sign_in_with_their_cookie() {
    let backend = Origin::new(|seen| {
        let status = if seen.line().contains("fails") { "503 No" } else { "200 OK" };
        (format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let (auth, status) = asked("Set-Cookie: csrf=1\r\nSet-Cookie: b=2\r\n");
    let signin = asking(&auth, |it| it.signin = "http://$host/start".into());
    let always = asking(&auth, |it| it.always_set_cookie = Some(true));
    let proxy = serving(&[("/x", signin), ("/always", always)], &backend);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/x").all("set-cookie"), ["csrf=1", "b=2"]);
    assert!(client.get("/x/fails").all("set-cookie").is_empty());
    assert_eq!(client.get("/always/fails").all("set-cookie"), ["csrf=1", "b=2"]);
    status.store(401, Ordering::SeqCst);
    let response = client.get("/x?a=b&c=d");
    assert_eq!(response.status, 302);
    assert_eq!(response.all("location"), ["http://a.test/start?rd=http://a.test%2Fx%3Fa%3Db%26c%3Dd"]);
    assert_eq!(response.all("set-cookie"), ["csrf=1", "b=2"]);
    status.store(403, Ordering::SeqCst);
    assert_eq!(client.get("/x").status, 403);
}

#[test]
fn answers_are_kept_for_their_key_alone() {
    let backend = Origin::says("in");
    let (auth, status) = asked("X-User: alice\r\n");
    let (cookie, cookie_status) = asked("Set-Cookie: own=1\r\n");
    let by_session = |it: &mut ExternalAuth| it.cache_key = "$cookie_session".into();
    let named = |it: &mut ExternalAuth| {
        it.cache_key = "fixed".into();
        it.response_headers = vec!["X-User".into()];
    };
    let paths = [
        ("/x", asking(&auth, by_session)),
        ("/fixed", asking(&auth, named)),
        ("/cookie", asking(&cookie, named)),
    ];
    let proxy = serving(&paths, &backend);
    let mut client = Client::new(proxy.http);
    let mut get = |path: &str, session: &str| {
        client
            .ask(&format!(
                "GET {path} HTTP/1.1\r\nHost: a.test\r\nX-User: f\r\nCookie: session={session}\r\n\r\n"
            ))
            .status
    };
    assert_eq!([get("/x", "good"), get("/fixed", ""), get("/cookie", "")], [200, 200, 200]);
    status.store(401, Ordering::SeqCst);
    cookie_status.store(403, Ordering::SeqCst);
    assert_eq!([get("/x", "good"), get("/fixed", ""), get("/cookie", "")], [200, 200, 403]);
    assert_eq!(backend.seen().last().unwrap().all("x-user"), ["alice"]);
    assert_eq!([get("/x", "bad"), get("/x", "bad")], [401, 401]);
    status.store(200, Ordering::SeqCst);
    assert_eq!(get("/x", "bad"), 401, "a refusal is kept as well");
}

#[test]
fn an_answer_is_kept_for_as_long_as_it_says_itself() {
    let backend = Origin::says("in");
    let fixed = |it: &mut ExternalAuth| it.cache_key = "fixed".into();
    let (never, never_status) = asked("Cache-Control: no-store\r\n");
    let (long, long_status) = asked("Cache-Control: max-age=60\r\n");
    let proxy = serving(&[("/never", asking(&never, fixed)), ("/long", asking(&long, fixed))], &backend);
    let mut client = Client::new(proxy.http);
    let mut both = |status: u16| {
        never_status.store(status, Ordering::SeqCst);
        long_status.store(status, Ordering::SeqCst);
        ["/never", "/long"].map(|path| client.get(path).status)
    };
    // A status that is not cached unless configured.
    assert_eq!(both(403), [403, 403]);
    assert_eq!(both(200), [200, 403]);
    assert_eq!(both(401), [401, 403]);
}

/// `any` is nginx' word for all statuses.
#[test]
fn any_answer_is_kept_where_that_is_said() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    let kept = asking(&auth, |it| {
        it.cache_key = "$cookie_session".into();
        it.cache_duration = "202 1ms, any 1m".into();
    });
    let proxy = serving(&[("/x", kept)], &backend);
    let mut client = Client::new(proxy.http);
    let mut get = |session: &str, says: u16| {
        status.store(says, Ordering::SeqCst);
        client.ask(&format!("GET /x HTTP/1.1\r\nHost: a.test\r\nCookie: session={session}\r\n\r\n")).status
    };
    assert_eq!([get("a", 403), get("a", 200)], [403, 403]);
    assert_eq!([get("b", 200), get("b", 403)], [200, 200]);
}

/// The cached response is also used for clients without a partial copy.
#[test]
fn auth_cache_stores_only_unconditional_responses() {
    let backend = Origin::says("in");
    let auth = Origin::new(|seen| {
        let (has, part) = (!seen.all("if-none-match").is_empty(), !seen.all("range").is_empty());
        let status = if has {
            "304 Same"
        } else if part {
            "416 No"
        } else {
            "200 In"
        };
        let answer = format!("HTTP/1.1 {status}\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n");
        (answer.into_bytes(), true)
    });
    let fixed = |it: &mut ExternalAuth| it.cache_key = "fixed".into();
    let proxy = serving(&[("/x", asking(&auth, fixed)), ("/y", asking(&auth, fixed))], &backend);
    let mut client = Client::new(proxy.http);
    for (path, field) in [("/x", "If-None-Match: *"), ("/y", "Range: bytes=99-")] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{field}\r\n\r\n");
        assert_eq!([client.ask(&head).status, client.get(path).status], [200, 200], "{field}");
        let name = field.split(':').next().unwrap();
        assert_eq!(backend.seen()[backend.seen().len() - 2].all(name).len(), 1, "the backend hears it");
    }
    assert_eq!(auth.seen().len(), 2);
}

/// The response's own Vary says what it depends on besides the key.
#[test]
fn an_answer_that_varies_is_kept_for_its_like_alone() {
    let backend = Origin::says("in");
    let auth = Origin::new(|seen| {
        let status = if seen.all("x-team") == ["red"] { "200 In" } else { "401 Out" };
        (format!("HTTP/1.1 {status}\r\nVary: Accept, X-Team\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let anew = Origin::new(|_| (b"HTTP/1.1 200 In\r\nVary: *\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let fixed = |it: &mut ExternalAuth| it.cache_key = "fixed".into();
    let proxy = serving(&[("/x", asking(&auth, fixed)), ("/anew", asking(&anew, fixed))], &backend);
    let mut client = Client::new(proxy.http);
    let mut by = |path: &str, team: &str| {
        client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nX-Team: {team}\r\n\r\n")).status
    };
    assert_eq!(["red", "blue", "red", "blue"].map(|team| by("/x", team)), [200, 401, 200, 401]);
    assert_eq!(auth.seen().len(), 2, "each of them is kept");
    assert_eq!(["red", "red"].map(|team| by("/anew", team)), [200, 200]);
    assert_eq!(anew.seen().len(), 2, "it depends on what nobody knows");
}

/// The key and the client's request do not tell what the service was sent then.
#[test]
fn answer_that_depends_on_what_the_proxy_adds_is_not_kept() {
    let backend = Origin::says("in");
    for field in
        ["X-Original-URL", "x-forwarded-for", "Accept, X-Real-IP", "X-Tenant", "X-Auth-Request-Redirect"]
    {
        let auth = Origin::new(move |seen| {
            let status =
                if seen.all("x-original-url")[0].ends_with("/x/public") { "200 In" } else { "401 Out" };
            (format!("HTTP/1.1 {status}\r\nVary: {field}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
        });
        let policy = asking(&auth, |it| {
            it.cache_key = "fixed".into();
            it.proxy_set_headers = vec![Header { name: "X-Tenant".into(), value: "$request_uri".into() }];
        });
        let proxy = serving(&[("/x", policy)], &backend);
        let mut client = Client::new(proxy.http);
        let statuses = ["/x/public", "/x/secret"].map(|path| client.get(path).status);
        assert_eq!(statuses, [200, 401], "{field}");
    }
}

/// Clients without any of the key's values are indistinguishable, and one of them may have been admitted for other
/// reasons.
#[test]
fn auth_cache_is_not_used_for_clients_without_a_key() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    let keyed = |key: &str| asking(&auth, |it| it.cache_key = key.into());
    let paths = [
        "$cookie_session",
        "$host:$http_x_token",
        "$remote_user",
        "$cookie_session$http_x_token",
        "$unknown",
    ];
    let names: Vec<_> = (0..paths.len()).map(|place| format!("/p{place}")).collect();
    let policies: Vec<_> = names.iter().map(String::as_str).zip(paths.map(keyed)).collect();
    let proxy = serving(&policies, &backend);
    let mut client = Client::new(proxy.http);
    for path in &names {
        status.store(200, Ordering::SeqCst);
        let shown = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer t\r\n\r\n");
        assert_eq!(client.ask(&shown).status, 200);
        status.store(401, Ordering::SeqCst);
        assert_eq!(client.get(path).status, 401, "{path}");
    }
    // The end of one value must not pass for the beginning of another.
    let mut both = |session: &str, token: &str| {
        let fields = format!("Cookie: session={session}\r\nX-Token: {token}\r\n");
        client.ask(&format!("GET /p3 HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n")).status
    };
    status.store(200, Ordering::SeqCst);
    assert_eq!(both("ab", "c"), 200);
    status.store(401, Ordering::SeqCst);
    assert_eq!([both("ab", "c"), both("a", "bc")], [200, 401]);
}

/// A location with another URL, or changed settings, does not use earlier responses.
#[test]
fn an_answer_counts_for_the_question_that_it_was_given_to() {
    let backend = Origin::says("in");
    let (auth, status) = asked("X-User: alice\r\n");
    let fixed = |it: &mut ExternalAuth| {
        it.url += "?tenant=$http_x_tenant";
        it.cache_key = "fixed".into();
    };
    let mut proxy = serving(&[("/x", asking(&auth, fixed))], &backend);
    let ask = |proxy: &Proxy, tenant: &str| {
        let head = format!("GET /x HTTP/1.1\r\nHost: a.test\r\nX-Tenant: {tenant}\r\nX-User: f\r\n\r\n");
        Client::new(proxy.http).ask(&head).status
    };
    assert_eq!(ask(&proxy, "one"), 200);
    status.store(401, Ordering::SeqCst);
    assert_eq!([ask(&proxy, "one"), ask(&proxy, "two")], [200, 401]);
    let edits: [&dyn Fn(&mut ExternalAuth); 3] =
        [&|it| it.method = "POST".into(), &|it| it.response_headers = vec!["X-User".into()], &|it| {
            it.proxy_set_headers = vec![Header { name: "X-Own".into(), value: "own".into() }]
        }];
    for edit in edits {
        let edited = asking(&auth, |it| {
            fixed(it);
            edit(it);
        });
        proxy.policies(false, &[("/x", edited)]);
        assert_eq!(ask(&proxy, "one"), 401);
    }
}

#[test]
fn the_fleets_question_and_the_exempt() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    status.store(401, Ordering::SeqCst);
    let off = LocationPolicy { enable_global_auth: Some(false), ..LocationPolicy::default() };
    let mut proxy = serving(
        &[("/on", LocationPolicy::default()), ("/off", off), ("/open", LocationPolicy::default())],
        &backend,
    );
    let defaults = LocationPolicy {
        global_auth_url: Some(format!("http://localhost:{}/", auth.address.port())),
        no_auth_locations: Some(TextList { values: vec!["/open".into()] }),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    assert_eq!(["/on", "/off", "/open"].map(|path| client.get(path).status), [401, 200, 200]);
    status.store(200, Ordering::SeqCst);
    assert_eq!(client.get("/on").status, 200);
}

/// In ingress-nginx a `Prefix` path is two locations, itself and what is below it, whose path has a slash at its end.
#[test]
fn what_is_below_a_path_may_be_exempt_alone() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    status.store(401, Ordering::SeqCst);
    let mut proxy = serving(&[("/public", LocationPolicy::default())], &backend);
    let listed = |text: &str| Some(TextList { values: vec![text.into()] });
    let asks = |open: &str| LocationPolicy {
        global_auth_url: Some(format!("http://localhost:{}/", auth.address.port())),
        no_auth_locations: listed(open),
        ..LocationPolicy::default()
    };
    let redirects = |plain: &str| LocationPolicy {
        force_ssl_redirect: Some(true),
        no_tls_redirect_locations: listed(plain),
        ..LocationPolicy::default()
    };
    for (list, [itself, below]) in
        [("/public/", [false, true]), ("/public", [true, true]), ("/public/x", [false, false])]
    {
        for (defaults, status) in [(asks(list), 401), (redirects(list), 308)] {
            proxy.defaults(defaults);
            let mut client = Client::new(proxy.http);
            let statuses = ["/public", "/public/", "/public/x"].map(|path| client.get(path).status);
            let expected = [itself, below, below].map(|is_spared| if is_spared { 200 } else { status });
            assert_eq!(statuses, expected, "{list}");
        }
    }
}

/// As nginx since 1.23.
#[test]
fn every_challenge_is_a_line_of_its_own() {
    let backend = Origin::says("in");
    let (auth, status) = asked("WWW-Authenticate: Bearer x\r\nWWW-Authenticate: Basic y\r\n");
    status.store(401, Ordering::SeqCst);
    let kept = asking(&auth, |it| it.cache_key = "fixed".into());
    let proxy = serving(&[("/x", kept)], &backend);
    let mut client = Client::new(proxy.http);
    for _ in 0..2 {
        assert_eq!(client.get("/x").all("www-authenticate"), ["Bearer x", "Basic y"]);
    }
    assert_eq!(auth.seen().len(), 1);
}

#[test]
fn no_id_is_made_for_the_question_if_none_is_made_at_all() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let silent = LocationPolicy { generate_request_id: Some(false), ..asking(&auth, |_| {}) };
    let proxy = serving(&[("/off", silent), ("/on", asking(&auth, |_| {}))], &backend);
    let mut client = Client::new(proxy.http);
    for (path, ids) in [("/off", 0), ("/on", 1)] {
        assert_eq!(client.get(path).status, 200);
        let said = [&auth, &backend].map(|it| it.seen().last().unwrap().all("x-request-id").len());
        assert_eq!(said, [ids; 2], "{path}");
    }
    let own = client.ask("GET /off HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: mine\r\n\r\n");
    assert_eq!(own.status, 200);
    assert_eq!(auth.seen().last().unwrap().all("x-request-id"), ["mine"]);
}

#[test]
fn service_and_backend_are_told_the_same_id() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let named = asking(&auth, |it| it.url.push_str("?id=$request_id"));
    let proxy = serving(&[("/x", named)], &backend);
    assert_eq!(Client::new(proxy.http).get("/x").status, 200);
    let (asked, told) = (auth.seen(), backend.seen());
    let id = told[0].all("x-request-id")[0];
    assert_eq!(id.len(), 32);
    assert_eq!(asked[0].all("x-request-id"), [id]);
    assert!(asked[0].target.ends_with(&format!("?id={id}")), "{}", asked[0].target);
}

/// The service is behind the location that asks it.
#[test]
fn an_auth_url_that_leads_to_itself_ends_with_500_after_a_few_requests() {
    let backend = Origin::says("in");
    let mut proxy = serving(&[("/x", LocationPolicy::default())], &backend);
    let url = format!("http://localhost:{}/x", proxy.http.port());
    let policy = LocationPolicy {
        external_auth: Some(ExternalAuth { url, ..ExternalAuth::default() }),
        ..LocationPolicy::default()
    };
    let route = Route { paths: vec![to("/x", PathType::Prefix, "x")], policy, ..Route::default() };
    proxy.config(vec![
        ("localhost", Resource::Host(Host::default())),
        ("ingress/ns/x/localhost", Resource::Route(route)),
    ]);
    let accepted = proxy.metrics.worker(0).accepted.value();
    let asked = Client::new(proxy.http).ask("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(asked.status, 500);
    assert_eq!(proxy.metrics.worker(0).accepted.value() - accepted, 5);
    assert!(backend.seen().is_empty());
}

/// A URL of a tenant must not lead into the proxy's own machine, by whatever name.
#[test]
fn auth_url_cannot_reach_the_proxys_own_machine() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let port = auth.address.port();
    let names = KnownNames::default();
    names.set(HashMap::from([("auth.test".into(), HashMap::from([(80, vec![auth.address])]))]));
    let places = [
        ("/literal", format!("127.0.0.1:{port}")),
        ("/mapped", format!("[::ffff:127.0.0.1]:{port}")),
        ("/nobody", format!("0.0.0.0:{port}")),
        ("/localhost", format!("localhost:{port}")),
        ("/name", "auth.test".to_owned()),
        ("/client", "$http_x_place".to_owned()),
    ];
    let said = places.map(|(path, place)| (path, asking(&auth, |it| it.url = format!("http://{place}/"))));
    for (networks, expected) in [(&[][..], 500), (&["127.0.0.0/8", "0.0.0.0"], 200)] {
        let mut proxy = Proxy::reaching(names.clone(), networks);
        proxy.policies(false, &said);
        let mut client = Client::new(proxy.http);
        for (path, _) in &said {
            proxy.endpoints(path.trim_start_matches('/'), &[backend.address]);
            let asks = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nX-Place: 127.0.0.1:{port}\r\n\r\n");
            assert_eq!(client.ask(&asks).status, expected, "{path} {networks:?}");
        }
        if expected == 500 {
            assert!(auth.seen().is_empty() && backend.seen().is_empty());
        }
    }
    assert_eq!(auth.seen().len(), said.len());
}

/// The address that is connected to is checked, whatever the name resolved to before.
#[test]
fn a_name_that_leads_elsewhere_later_is_judged_again() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let page = Origin::listening(TcpListener::bind("127.0.0.2:0").unwrap(), |_| (ok("secret"), true));
    let names = KnownNames::default();
    let lead = |to: &[&Origin]| {
        let addresses = to.iter().map(|origin| origin.address).collect();
        names.set(HashMap::from([("auth.test".into(), HashMap::from([(80, addresses)]))]));
    };
    lead(&[&auth]);
    let mut proxy = Proxy::reaching(names.clone(), &["127.0.0.1"]);
    proxy.policies(false, &[("/x", asking(&auth, |it| it.url = "http://auth.test/".into()))]);
    proxy.endpoints("x", &[backend.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/x").status, 200);
    lead(&[&page]);
    assert_eq!(client.get("/x").status, 500);
    lead(&[&page, &auth]);
    assert_eq!(client.get("/x").status, 200, "another address is asked");
    assert_eq!((auth.seen().len(), page.seen().len()), (2, 0));
}

#[test]
fn auth_service_gets_the_whole_x_forwarded_for_if_backends_do() {
    let backend = Origin::says("in");
    let (auth, _) = asked("");
    let mut proxy = serving(&[("/x", asking(&auth, |_| {}))], &backend);
    let defaults = LocationPolicy {
        use_forwarded_headers: Some(true),
        compute_full_forwarded_for: Some(true),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    let came = "GET /x HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\n\r\n";
    assert_eq!(client.ask(came).status, 200);
    for seen in [auth.seen().remove(0), backend.seen().remove(0)] {
        assert_eq!(seen.all("x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 127.0.0.1"]);
        assert_eq!(seen.all("x-real-ip"), ["1.1.1.1"]);
    }
}

/// For most applications all of these are one header, `HTTP_X_USER`.
#[test]
fn client_headers_that_look_like_identity_headers_are_removed() {
    let backend = Origin::says("in");
    let (auth, _) = asked("X-User: alice\r\n");
    let header = |name: &str| Header { name: name.into(), value: "ours".into() };
    let told = |name: &str| {
        let mut said = asking(&auth, |it| {
            it.response_headers = vec![name.into()];
            it.told_headers = vec![Header { name: "X-Also".into(), value: name.into() }];
            it.proxy_set_headers = vec![header("X-Asked")];
        });
        let headers = vec![header("X-Set"), header("X_Odd")];
        said.proxy_set_headers = Some(HeaderList { headers });
        said
    };
    let mut proxy = serving(&[("/x", told("X-User"))], &backend);
    let defaults = LocationPolicy {
        enable_underscores_in_headers: Some(true),
        ignore_invalid_headers: Some(false),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let claims =
        ["X_User", "x_USER", "X-User", "X.User", "X_Also", "X_Set", "X.Set", "X-Odd", "X_Odd", "X_Asked"];
    let claims: String = claims.map(|name| format!("{name}: admin\r\n")).concat();
    let mut client = Client::new(proxy.http);
    client.send(format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{claims}X_Mine: mine\r\n\r\n"));
    assert_eq!(client.receive(false).unwrap().status, 200);
    let head = backend.seen().last().unwrap().head.to_ascii_lowercase();
    for field in ["x-user: alice", "x-also: alice", "x-set: ours", "x_odd: ours", "x_mine: mine"] {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{field}: {head}");
    }
    assert!(!head.contains("admin"), "{head}");
    let asked = auth.seen().last().unwrap().head.to_ascii_lowercase();
    assert!(asked.contains("\r\nx-asked: ours\r\n") && !asked.contains("x_asked"), "{asked}");
}

#[test]
fn auth_service_may_send_a_limited_number_of_early_hints() {
    let backend = Origin::says("in");
    let auth = Origin::new(|seen| {
        let hints = seen.header("x-hints").unwrap().parse().unwrap();
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(hints);
        (format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let proxy = serving(&[("/x", asking(&auth, |_| {}))], &backend);
    let ask = |hints| {
        let request = format!("GET /x HTTP/1.1\r\nHost: a.test\r\nX-Hints: {hints}\r\n\r\n");
        Client::new(proxy.http).ask(&request).status
    };
    assert_eq!([ask(8), ask(9)], [200, 500]);
}

/// An Ingress may have several hosts, and access to one of them does not imply access to the other.
#[test]
fn answers_are_kept_for_the_host_that_was_asked_for() {
    let backend = Origin::says("in");
    let auth = Origin::new(|seen| {
        let is_a = seen.all("x-original-url").iter().any(|url| url.starts_with("http://a.test/"));
        let status = if is_a { "200 In" } else { "401 Out" };
        (format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let fixed = asking(&auth, |it| it.cache_key = "fixed".into());
    let mut proxy = serving(&[("/x", fixed.clone())], &backend);
    let paths = vec![to("/x", PathType::Prefix, "x")];
    let route = Resource::Route(Route { paths, policy: fixed, ..Route::default() });
    proxy.config(vec![("b.test", Resource::Host(Host::default())), ("ingress/ns/x/b.test", route)]);
    let by =
        |host: &str| Client::new(proxy.http).ask(&format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    assert_eq!(["a.test", "b.test", "a.test", "b.test"].map(by), [200, 401, 200, 401]);
    assert_eq!(auth.seen().len(), 2, "each of them is kept");
}

/// A path that moves from one Ingress to another does not take cached responses along: the same question may have
/// another meaning.
#[test]
fn answers_are_kept_for_the_ingress_that_asked() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    let fixed = asking(&auth, |it| it.cache_key = "fixed".into());
    let mut proxy = serving(&[("/x", fixed.clone())], &backend);
    assert_eq!(Client::new(proxy.http).get("/x").status, 200);
    status.store(403, Ordering::SeqCst);
    assert_eq!(Client::new(proxy.http).get("/x").status, 200, "it is kept");
    proxy.remove(shared::kind::Kind::Route, "ingress/ns/x/a.test");
    let paths = vec![to("/x", PathType::Prefix, "x")];
    let route = Resource::Route(Route { paths, policy: fixed, ..Route::default() });
    proxy.config(vec![("ingress/ns/other/a.test", route)]);
    assert_eq!(Client::new(proxy.http).get("/x").status, 403);
}

/// What is allowed below one path of an Ingress is not allowed below another, whatever the key says.
#[test]
fn answers_are_kept_for_the_path_that_was_asked_for() {
    let backend = Origin::says("in");
    let (auth, status) = asked("");
    let fixed = asking(&auth, |it| it.cache_key = "fixed".into());
    let mut proxy = serving(&[("/x", fixed.clone())], &backend);
    let paths = ["/x", "/y"].map(|path| to(path, PathType::Prefix, "x")).to_vec();
    let route = Resource::Route(Route { paths, policy: fixed, ..Route::default() });
    proxy.config(vec![("ingress/ns/x/a.test", route)]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/x").status, 200);
    status.store(403, Ordering::SeqCst);
    assert_eq!(["/x", "/y"].map(|path| client.get(path).status), [200, 403]);
}
