use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use data_plane::local::Limits;
use shared::policy::LocationPolicy;
use shared::resource::{Denial, Host, PathType, Resource, Route, SETTINGS_KEY, Settings};
use test_kit::client::frames::{END_HEADERS, END_STREAM, HEADERS, RESET};

use super::harness::*;
use super::hostile::{Frames, get};

/// A client of HTTP/2 resets a stream, one of HTTP/1.1 closes its connection: neither undoes what was sent.
#[test]
fn a_client_that_gives_up_leaves_what_its_endpoint_was_sent() {
    let silent = Origin::raw(|mut stream, connection, seen| {
        while let Some(request) = read_request(&mut stream, connection) {
            seen.lock().unwrap().push(request);
        }
    });
    let mut proxy = Proxy::serving(Limits::default(), &[silent.address]);
    let format = Some("$status [$request_completion] $upstream_status $upstream_bytes_sent".into());
    proxy.defaults(LocationPolicy { log_format_upstream: format, ..LocationPolicy::default() });
    let mut stream = TcpStream::connect(proxy.http).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    eventually("it is asked for", || silent.seen().len() == 1);
    drop(stream);
    eventually("the connection is gone", || proxy.metrics.open() == 0);
    let mut frames = Frames::new(&proxy);
    assert!(frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &get()));
    eventually("it is asked for", || silent.seen().len() == 2);
    assert!(frames.send(RESET, 0, 1, &8_u32.to_be_bytes()));
    drop(frames);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].starts_with("499 [] - ") && !lines[0].ends_with(" 0"), "{log}");
    assert_eq!(lines[0], lines[1]);
}

/// Lines without time, request time and request id.
fn lines(log: &str) -> Vec<String> {
    let line = |line: &str| {
        let (before, rest) = line.split_once(" [").unwrap();
        let (_, after) = rest.split_once("] ").unwrap();
        let (after, id) = after.rsplit_once(' ').unwrap();
        assert!(id.len() == 32, "{line}");
        format!("{before} {after}")
    };
    log.lines().map(line).collect()
}

#[test]
fn one_line_a_request() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.config(vec![("_", Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    let request = "GET /x?y=\"1\" HTTP/1.1\r\nHost: a.test\r\nUser-Agent: me\r\nReferer: there\r\n\
                   Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n";
    client.ask(request);
    client.ask("GET /quiet HTTP/1.1\r\nHost: nobody.test\r\n\r\n");
    client.ask("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.ask("BAD\r\n\r\n");
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines = lines(&log);
    let address = origin.address;
    assert_eq!(lines.len(), 3, "{log}");
    let expected = format!(
        "127.0.0.1 - user \"GET /x?y=\\x221\\x22 HTTP/1.1\" 200 5 \"there\" \"me\" {} 0.",
        request.len()
    );
    assert!(lines[0].starts_with(&expected), "{log}");
    assert!(lines[0].contains(&format!(" [ns-echo-80] [] {address} 5 0.")), "{log}");
    assert!(lines[0].ends_with(" 200"), "{log}");
    assert!(lines[1].starts_with("127.0.0.1 - - \"HEAD / HTTP/1.1\" 200 0 \"-\" \"-\" "), "{log}");
    assert!(lines[2].starts_with("127.0.0.1 - - \"BAD\" 400 "), "{log}");
    assert!(lines[2].contains(" [-] [] - - - -"), "{log}");
}

/// Whoever probes a proxy does so every few seconds.
#[test]
fn probes_of_the_proxy_itself_are_not_logged() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.config(vec![("_", Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    for (host, path) in [("nobody.test", "/healthz"), ("nobody.test", "/nginx_status"), ("a.test", "/x")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(client.ask(&request).status, 200, "{path}");
    }
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("\"GET /x HTTP/1.1\" 200"), "{log}");
}

#[test]
fn a_line_names_its_connection_by_number() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let format = Some("$connection".into());
    proxy.defaults(LocationPolicy { log_format_upstream: format, ..LocationPolicy::default() });
    let mut clients = [(); 2].map(|()| Client::new(proxy.http));
    for client in [0, 0, 1] {
        assert_eq!(clients[client].get("/").status, 200);
    }
    drop(clients);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let numbers: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers[0] == numbers[1] && numbers[1] != numbers[2], "{log}");
}

/// A connection that is kept takes no time, and an endpoint that leaves has sent no head.
#[test]
fn the_time_to_connect_is_not_that_of_the_head() {
    let origin = Origin::new(|seen| match seen.line().contains("/leaves") {
        true => (Vec::new(), false),
        false => (ok("hello"), true),
    });
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let format = Some("$upstream_connect_time $upstream_header_time".into());
    proxy.defaults(LocationPolicy { log_format_upstream: format, ..LocationPolicy::default() });
    let mut client = Client::new(proxy.http);
    let leaving = "POST /leaves HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n";
    let statuses = [client.ask(leaving).status, client.get("/").status, client.get("/").status];
    assert_eq!(statuses, [502, 200, 200]);
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let is_time = |text: &str| text.parse::<f64>().is_ok();
    assert!(is_time(lines[0].0) && lines[0].1 == "-", "{log}");
    assert!(is_time(lines[1].0) && is_time(lines[1].1), "{log}");
    assert!(lines[2].0 == "0.000" && is_time(lines[2].1), "{log}");
}

/// nginx asks the connection how much it has taken, and counts what it reads: what stands around the pieces of a body counts.
#[test]
fn bytes_are_those_that_the_client_is_sent() {
    let origin = Origin::new(|seen| match seen.line().contains("/chunks") {
        true => {
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(), true)
        }
        false => (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec(), true),
    });
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let defaults = LocationPolicy {
        log_format_upstream: Some("$bytes_sent $body_bytes_sent $upstream_response_length".into()),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let mut expected = Vec::new();
    for target in ["/chunks", "/length"] {
        let mut stream = TcpStream::connect(proxy.http).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let body = answer.len() - head;
        expected.push(format!("{} {body} {}", answer.len(), if target == "/chunks" { 15 } else { 5 }));
    }
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
}

/// Heads and framing count, and each request on a connection counts its own.
#[test]
fn bytes_of_an_endpoint_are_those_on_its_connection() {
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let origin = Origin::new(|seen| match seen.line().contains("/chunks") {
        true => (chunks.to_vec(), true),
        false => (length.to_vec(), true),
    });
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let defaults = LocationPolicy {
        log_format_upstream: Some("$upstream_bytes_sent $upstream_bytes_received".into()),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    let mut expected = Vec::new();
    for (target, answer) in [("/chunks", &chunks[..]), ("/length", length), ("/length?longer", length)] {
        client.get(target);
        expected.push(answer.len());
    }
    client.ask("POST /body HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody");
    expected.push(length.len());
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines = log.lines().map(|line| line.split_once(' ').unwrap());
    let (sent, received): (Vec<usize>, Vec<usize>) = lines
        .map(|(sent, received)| (sent.parse::<usize>().unwrap(), received.parse::<usize>().unwrap()))
        .unzip();
    assert_eq!(received, expected);
    assert_eq!(sent[2] - sent[1], "?longer".len());
    assert_eq!(sent[1] - sent[0], 0);
    assert!(sent[3] > sent[1] + 4, "{sent:?}");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_endpoint_that_refuses_moves_no_bytes() {
    let mut proxy = Proxy::serving(Limits::default(), &[refusing()]);
    let defaults = LocationPolicy {
        log_format_upstream: Some("$upstream_bytes_sent|$upstream_bytes_received".into()),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    Client::new(proxy.http).get("/");
    assert_eq!(proxy.stop(Duration::ZERO, PATIENCE), "0, 0, 0|0, 0, 0\n");
}

#[test]
fn every_try_is_told() {
    let dead = refusing();
    let proxy = Proxy::serving(Limits::default(), &[dead]);
    Client::new(proxy.http).get("/");
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains(&format!(" [ns-echo-80] [] {dead}, {dead}, {dead} 0, 0, 0 ")), "{log}");
    assert!(log.contains(" 502, 502, 502 "), "{log}");
}

#[test]
fn a_body_that_nobody_asks_for_is_not_part_of_the_length() {
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/", PathType::Exact, "empty")]);
    let defaults =
        LocationPolicy { log_format_upstream: Some("$request_length".into()), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\n";
    let mut client = Client::new(proxy.http);
    for _ in 0..2 {
        assert_eq!(client.ask(&format!("{head}body")).status, 503);
    }
    // The server that says so in ingress-nginx gets the body.
    assert_eq!(client.ask(&format!("{}body", head.replace("POST /", "PUT /x"))).status, 404);
    drop(client);
    assert_eq!(proxy.stop(Duration::ZERO, PATIENCE), format!("{0}\n{0}\n{1}\n", head.len(), head.len() + 4));
}

#[test]
fn an_upstream_is_named_whatever_is_answered() {
    let mut proxy = Proxy::start();
    proxy.host("tls.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.host("empty.test", false, &[("/", PathType::Exact, "empty")]);
    let denied = Route {
        paths: vec![to("/", PathType::Prefix, "shut")],
        denied: Some(Denial { reason: "auth-url is not enforced yet".to_owned() }),
        ..Route::default()
    };
    let missing = Route { paths: vec![to("/", PathType::Prefix, "missing")], ..Route::default() };
    proxy.config(vec![
        ("shut.test", Resource::Host(Host::default())),
        ("ingress/ns/web/shut.test", Resource::Route(denied)),
        ("missing.test", Resource::Host(Host::default())),
        ("ingress/ns/web/missing.test", Resource::Route(missing)),
    ]);
    let expected = [
        ("tls.test", "/", 308, "ns-echo-80", "- - -", "-"),
        ("empty.test", "/", 503, "ns-empty-80", "- - -", "-"),
        ("shut.test", "/", 503, "ns-shut-80", "- - -", "-"),
        ("missing.test", "/", 503, "ns-missing-80", "- - -", "-"),
        // In ingress-nginx a server of its own says that.
        ("empty.test", "/other", 404, "upstream-default-backend", "127.0.0.1:8181 146", "404"),
    ];
    for (host, target, status, ..) in expected {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, status, "{host}");
    }
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    for ((host, .., upstream, asked, answered), line) in expected.iter().zip(log.lines()) {
        assert!(line.contains(&format!(" [{upstream}] [] {asked} ")), "{host}: {line}");
        assert_eq!(line.rsplit(' ').nth(1), Some(*answered), "{host}: {line}");
    }
}

/// The log of `GET` requests with these heads and this log format.
fn logged(format: &str, escape: (bool, bool), requests: &[&str]) -> Vec<String> {
    let origin = Origin::new(|_| {
        (
            b"HTTP/1.1 201 Made\r\nX-Own: inner\r\nX-Accel-Buffering: no\r\n\
              Set-Cookie: other=1\r\nSet-Cookie: SID=42; Path=/\r\nContent-Length: 2\r\n\r\nhi"
                .to_vec(),
            true,
        )
    });
    let mut proxy = Proxy::start();
    let said = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
    proxy.policies(false, &[("/echo", said)]);
    proxy.endpoints("echo", &[origin.address]);
    let defaults = LocationPolicy {
        log_format_upstream: Some(format.to_owned()),
        log_format_escape_json: Some(escape.0),
        log_format_escape_none: Some(escape.1),
        ..LocationPolicy::default()
    };
    let settings = Settings { defaults, ..Settings::default() };
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(settings))]);
    let mut client = Client::new(proxy.http);
    for request in requests {
        client.ask(request);
    }
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    log.replace(&origin.address.to_string(), "ORIGIN").lines().map(str::to_owned).collect()
}

/// What ingress-nginx' map for `compute-full-forwarded-for` gives: the list as it came, and the peer.
#[test]
fn a_line_has_the_whole_list_of_clients_and_nothing_for_variables_of_nobody() {
    let heads = [
        "GET /echo HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 9.9.9.9, 8.8.8.8\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ];
    let format = "$status [$full_x_forwarded_for] [$uri_normalized] [$1]";
    let expected = ["201 [9.9.9.9, 8.8.8.8, 127.0.0.1] [-] [-]", "201 [127.0.0.1] [-] [-]"];
    assert_eq!(logged(format, (false, false), &heads), expected);
    let expected = ["201 [9.9.9.9, 8.8.8.8, 127.0.0.1] [] []", "201 [127.0.0.1] [] []"];
    assert_eq!(logged(format, (true, false), &heads), expected);
}

#[test]
fn a_line_is_made_of_what_the_fleet_says() {
    let heads = [
        "GET /echo/%61?a=1&b HTTP/1.1\r\nHost: A.test\r\nX-Forwarded-For: 7.7.7.7\r\nCookie: c=\"2\"\r\n\r\n",
        "GET /nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ];
    let format = "$status|$host|$http_host|$uri|$request_uri|$args|$arg_a|$is_args|$scheme|$connection_requests\
                  |$pipe|$request_completion";
    assert_eq!(
        logged(format, (false, false), &heads),
        [
            "201|a.test|A.test|/echo/a|/echo/%61?a=1&b|a=1&b|1|?|http|1|.|OK",
            "404|a.test|a.test|/nowhere|/nowhere|-|-||http|2|.|OK",
        ]
    );
    // The client's own values, not those that the backend is told; of responses both the original and the sent values.
    let format = "$http_x_forwarded_for|$cookie_c|$upstream_http_x_accel_buffering|$sent_http_x_accel_buffering\
                  |$sent_http_x_own|$sent_http_content_length|$upstream_addr|$upstream_status|$upstream_http_x_no";
    assert_eq!(
        logged(format, (false, false), &heads),
        [r"7.7.7.7|\x222\x22|no|-|inner|2|ORIGIN|201|-", "-|-|-|-|-|146|127.0.0.1:8181|404|-"]
    );
    let format = "$http2|$ssl_alpn_protocol|$server_addr|$upstream_cookie_sid|$upstream_cookie_si";
    assert_eq!(logged(format, (false, false), &heads), ["|-|127.0.0.1|42|-", "|-|127.0.0.1|-|-"]);
    let format = "$namespace/$ingress_name $service_name:$service_port $location_path $proxy_upstream_name \
                  [$proxy_alternative_upstream_name] $server_name";
    assert_eq!(
        logged(format, (false, false), &heads),
        ["ns/echo echo:80 /echo ns-echo-80 [] a.test", "ns/echo : / upstream-default-backend [] a.test"]
    );
}

/// As in nginx: one that is longer than its buffer, is streamed, or is sent to nobody has none.
#[test]
fn a_line_has_a_body_that_was_in_memory() {
    let post = |path: &str, body: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let chunks = "POST /echo HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\na\"\r\n3\r\nb\nc\r\n0\r\n\r\n";
    let requests = [
        post("/echo", "a=1"),
        chunks.to_owned(),
        post("/echo", &"x".repeat(70_000)),
        post("/echo", ""),
        post("/nowhere", "a=1"),
    ];
    assert_eq!(
        logged("$status $request_body", (false, false), &requests.each_ref().map(|it| &**it)),
        ["201 a=1", r"201 a\x22b\x0Ac", "201 -", "201 -", "404 -"]
    );
}

/// As in ingress-nginx: no other id is made up for the log.
#[test]
fn the_id_in_the_log_is_the_one_that_the_endpoint_was_told() {
    let origin = Origin::says("hi");
    let mut proxy = Proxy::start();
    for (path, makes) in [("/on", true), ("/off", false)] {
        let said = LocationPolicy { generate_request_id: Some(makes), ..LocationPolicy::default() };
        proxy.policies(false, &[(path, said)]);
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let format = Some("$req_id|$request_id".into());
    let defaults = LocationPolicy { log_format_upstream: format, ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    client.ask("GET /off HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.ask("GET /off HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: mine\r\n\r\n");
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines: Vec<_> = log.lines().map(|line| line.split_once('|').unwrap()).collect();
    assert_eq!([lines[0].0, lines[1].0], ["", "mine"]);
    assert!(lines.iter().all(|(_, own)| own.len() == 32), "{lines:?}");
}

#[test]
fn a_line_of_json_is_json_whatever_the_client_says() {
    let format = r#"{"agent": "$http_user_agent", "x": "$http_x", "user": "$remote_user", "uri": "$uri", "n": $status}"#;
    let head = "GET /echo/%0a%22%5C}%0d HTTP/1.1\r\nHost: a.test\r\nUser-Agent: \"\\\t{\r\nX: a\", \"n\": 1}\r\n\r\n";
    let lines = logged(format, (true, false), &[head, "BAD\r\n\r\n"]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        (&line["agent"], &line["x"], &line["uri"]),
        (&"\"\\\t{".into(), &"a\", \"n\": 1}".into(), &"/echo/\n\"\\}\r".into())
    );
    assert_eq!(lines[1], r#"{"agent": "", "x": "", "user": "", "uri": "", "n": 400}"#);
    // Nothing is escaped, and still it is a single line.
    let plain = logged("$uri|$http_x", (true, true), &[head]);
    assert_eq!(plain, [r#"/echo/\x0A"\}\x0D|a", "n": 1}"#]);
}

/// As far as they can be read: dashboards group by them.
#[test]
fn method_and_host_of_a_refused_head_are_logged() {
    let format = "$request_method|$host|$http_host|$http_x|$http_user_agent|$status";
    let lines = [
        "GET /a HTTP/1.1\r\nHost: A.test:80\r\nX : y\r\nUser-Agent: u\r\n\r\n",
        "PUT /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        "BAD\r\n\r\n",
    ]
    .map(|head| logged(format, (false, false), &[head]).concat());
    assert_eq!(lines, ["GET|a.test|A.test:80|-|u|400", "PUT|-|a b|-|-|400", "-|-|-|-|-|400"]);
}

/// As in nginx, which closes these connections without a response: whoever bans slow clients reads it in the log.
#[test]
fn heads_that_do_not_arrive_whole_are_logged() {
    let limits = Limits { head: Duration::from_millis(300), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[]);
    let begin = |head: &str| {
        let mut client = Client::new(proxy.http);
        client.send(head);
        client
    };
    assert!(begin("GET /slow HTTP/1.1\r\nHost: a.test\r\nX-Half: ").ended());
    let mut leaves = begin("GET /left HTTP/1.1\r\nHost: a");
    leaves.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(leaves.ended());
    // Nothing was asked.
    drop(Client::new(proxy.http));
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let seen: Vec<_> = log.lines().map(|line| line.split('"').skip(1).take(2).collect::<String>()).collect();
    assert_eq!(seen.len(), 2, "{log}");
    assert!(seen[0].starts_with("GET /slow HTTP/1.1 408 0 "), "{log}");
    assert!(seen[1].starts_with("GET /left HTTP/1.1 400 0 "), "{log}");
}

/// In ingress-nginx `access_log` is outside of all servers: requests without a location are logged according to the
/// fleet's settings.
#[test]
fn request_without_location_is_logged_by_the_fleets_settings() {
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[]);
    let settings = |said| LocationPolicy { block_user_agents: Some(text("bot")), ..said };
    let format = |text: &str| LocationPolicy {
        log_format_upstream: Some(text.to_owned()),
        ..LocationPolicy::default()
    };
    // None of them reaches a location, so nothing else has told the worker the log format.
    let ask = |proxy: &Proxy, mark: &str| {
        for request in [
            format!("BAD {mark}\r\n\r\n"),
            format!("GET /%00{mark} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            format!("GET /{mark} HTTP/1.1\r\n\r\n"),
        ] {
            assert_eq!(Client::new(proxy.http).ask(&request).status, 400, "{request}");
        }
        let request = format!("GET /{mark} HTTP/1.1\r\nHost: a.test\r\nUser-Agent: bot\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, 403);
        let mut plain = Client::new(proxy.https);
        assert_eq!(plain.ask(&format!("GET /{mark} HTTP/1.1\r\nHost: a.test\r\n\r\n")).status, 400);
    };
    for (mark, said) in [
        ("one", format("1|$status|$request")),
        ("two", format("2|$status|$request|$http_user_agent")),
        ("off", LocationPolicy { disable_access_log: Some(true), ..format("3|$request") }),
        ("http", LocationPolicy { disable_http_access_log: Some(true), ..format("4|$request") }),
    ] {
        proxy.defaults(settings(said));
        ask(&proxy, mark);
    }
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [
            "1|400|BAD one",
            "1|400|GET /%00one HTTP/1.1",
            "1|400|GET /one HTTP/1.1",
            "1|403|GET /one HTTP/1.1",
            "1|400|GET /one HTTP/1.1",
            "2|400|BAD two|-",
            "2|400|GET /%00two HTTP/1.1|-",
            "2|400|GET /two HTTP/1.1|-",
            "2|403|GET /two HTTP/1.1|bot",
            "2|400|GET /two HTTP/1.1|-",
        ]
    );
}

/// Where the location is not logged, the redirect to it is not either: nginx has found it by then.
#[test]
fn redirect_to_the_slash_is_logged_as_its_location_says() {
    let mut proxy = Proxy::start();
    for (path, is_logged) in [("/shown/", None), ("/hidden/", Some(false))] {
        let policy = LocationPolicy { enable_access_log: is_logged, ..LocationPolicy::default() };
        let route = Route { paths: vec![to(path, PathType::Prefix, "echo")], policy, ..Route::default() };
        let key = format!("ingress/ns{path}a.test");
        proxy.config(vec![("a.test", Resource::Host(Host::default())), (&key, Resource::Route(route))]);
    }
    let mut client = Client::new(proxy.http);
    assert_eq!(["/hidden", "/shown"].map(|path| client.get(path).status), [301, 301]);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("\"GET /shown HTTP/1.1\" 301"), "{log}");
}

fn text(value: &str) -> shared::policy::TextList {
    shared::policy::TextList { values: vec![value.to_owned()] }
}
