use proptest::prelude::*;
use proptest::sample::select;

use super::reading::readings;
use super::*;

fn normal(raw: &str) -> Result<String, PathError> {
    normalise(raw.as_bytes()).map(|normalised| String::from_utf8_lossy(&normalised.path).into_owned())
}

#[test]
fn the_normal_form_is_nginx() {
    for (raw, expected) in [
        ("/", "/"),
        ("/a/b.c/", "/a/b.c/"),
        ("/a//b", "/a/b"),
        ("//", "/"),
        ("/./a", "/a"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/../b", "/b"),
        ("/a/.../b", "/a/.../b"),
        ("/a/.b", "/a/.b"),
        ("/a/..b/c..", "/a/..b/c.."),
        ("/public/..%2fadmin", "/admin"),
        ("/public/%2e%2E/admin", "/admin"),
        ("/public%2fx", "/public/x"),
        ("/public//../admin", "/admin"),
        ("/public/./..//admin/x", "/admin/x"),
        ("/a%20b", "/a b"),
        ("/%2561", "/%61"),
        ("/a%3fb%23c", "/a?b#c"),
        ("/a;x/../b", "/b"),
        ("/a\\..\\b", "/a\\..\\b"),
    ] {
        assert_eq!(normal(raw), Ok(expected.to_owned()), "{raw}");
    }
    for (raw, error) in [
        ("", PathError::NotAbsolute),
        ("a", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
        ("/..", PathError::AboveRoot),
        ("/a/../..", PathError::AboveRoot),
        ("/../a", PathError::AboveRoot),
        ("/%2e%2e/a", PathError::AboveRoot),
        ("/%", PathError::Escape),
        ("/%2", PathError::Escape),
        ("/%zz", PathError::Escape),
        ("/%u002e", PathError::Escape),
        ("/%00", PathError::Nul),
    ] {
        assert_eq!(normal(raw), Err(error), "{raw}");
    }
}

#[test]
fn only_paths_with_two_readings_are_suspicious() {
    for raw in ["/", "/a.b/c-d_e~f", "/a?", "/a/b/", "/\u{e9}"] {
        assert!(!normalise(raw.as_bytes()).unwrap().suspicious, "{raw}");
    }
    for raw in ["/%41", "//", "/.a", "/a;b", "/a\\b", "/a/./b"] {
        assert!(normalise(raw.as_bytes()).unwrap().suspicious, "{raw}");
    }
}

#[test]
fn a_normal_path_is_written_as_nginx_writes_it() {
    assert_eq!(
        re_encode(b"/a b/%41?#\x01\xff;\\\"<>^`{|}~!$&'()*+,:=@"),
        b"/a%20b/%2541%3F%23%01%FF;%5C%22%3C%3E%5E%60%7B%7C%7D~!$&'()*+,:=@"
    );
}

#[test]
fn query_value_is_escaped() {
    let mut out = Vec::new();
    escape(b"/a b?x=1&y=\xff~", &mut out);
    assert_eq!(out, b"%2Fa%20b%3Fx%3D1%26y%3D%FF~");
    out.clear();
    escape(b"\x01!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\x7f", &mut out);
    let as_nginx: &[u8] = b"%01!%22%23$%25%26'()*%2B,-.%2F%3A%3B%3C%3D%3E%3F@%5B%5C%5D%5E_`%7B|%7D~%7F";
    assert_eq!(out, as_nginx);
}

#[test]
fn a_declared_path_that_has_to_be_escaped_is_reached() {
    for (raw, declared) in
        [("/sch%C3%B6n", "/sch\u{f6}n"), ("/a%20b", "/a b"), ("/c%7Cd", "/c|d"), ("/q%22x", "/q\"x")]
    {
        let normalised = normalise(raw.as_bytes()).unwrap();
        let verdict = forward(
            raw.as_bytes(),
            &normalised,
            |path| path == declared.as_bytes(),
            |chosen, read, _| chosen != read,
        );
        assert_eq!(verdict, Verdict::Raw, "{raw}");
    }
}

/// Separates `/public` and below from everything else.
fn route(path: &[u8]) -> bool {
    path == b"/public" || path.starts_with(b"/public/")
}

fn verdict(raw: &str) -> Result<Option<String>, ()> {
    let normalised = normalise(raw.as_bytes()).map_err(|_| ())?;
    match forward(raw.as_bytes(), &normalised, route, |chosen, read, _| chosen != read) {
        Verdict::Raw => Ok(None),
        Verdict::Normal(target) => Ok(Some(String::from_utf8(target).unwrap())),
        Verdict::Refuse => Err(()),
    }
}

#[test]
fn a_backend_reads_the_route_that_was_chosen() {
    let normal = |target: &str| Ok(Some(target.to_owned()));
    for (raw, expected) in [
        ("/public/a%20b", Ok(None)),
        ("/public/a/../b", Ok(None)),
        ("/public/x;v=1", Ok(None)),
        ("/other;v=1/x", Ok(None)),
        ("/public/../admin", normal("/admin")),
        ("/public/%2e%2e/admin", normal("/admin")),
        ("/public/..%2fadmin%3f", normal("/admin%3F")),
        // A reader that decodes without resolving dots (WSGI) would see `/public/../admin`.
        ("/public%2f..%2fadmin", normal("/admin")),
        ("/public%2fx", normal("/public/x")),
        ("//public/x", normal("/public/x")),
        // A reader that parses a target as a URI reference takes `a.test` for a host.
        ("//a.test/public/x", normal("/a.test/public/x")),
        ("///a.test:80/public", normal("/a.test:80/public")),
        ("//public/a.test/x", normal("/public/a.test/x")),
        ("//a.test/other", Ok(None)),
        ("//a.test", Ok(None)),
        ("/\\a.test/public/x", Err(())),
        ("//a.test\\public/x", Err(())),
        ("/a.test//public/x", Ok(None)),
        ("/public//../admin", normal("/admin")),
        ("/./public/x", normal("/public/x")),
        ("/admin/../public/x", normal("/public/x")),
        ("/public/..\\admin", Err(())),
        ("/public/..%5cadmin", Err(())),
        ("/public/%252e%252e/admin", Err(())),
        ("/public%252fx", Err(())),
        // A proxy decodes it and sends it on, and an application decodes it again and matches it as it is.
        ("/public%252f./..", Err(())),
        // Decoded, cut and decoded again: `/%2f;%2fa/public`, `/%2f/public`, `/public`.
        ("/%252f%3b%252fa/public", Err(())),
        // Literal backslashes as slashes, but not escaped ones: `/A\\a/..//public`.
        ("/%41%5ca/..\\%2Fpublic", Err(())),
        ("/public/.;/../admin", Err(())),
        // Spring cuts parameters and matches patterns with dots as they are: `/public/../admin`.
        ("/public;x=1/../admin", Err(())),
        ("/public;x/..;/admin", Err(())),
        ("/public/x;y/../z", Ok(None)),
        // A pattern stops at a line break.
        ("/public%0ax", Err(())),
        ("/public%0a", Err(())),
        ("/%70ublic%0A/../x", Ok(None)),
        // And the backend reads what precedes it.
        ("/public/..%0a", Err(())),
        ("/public/%2e%2e%0ax", Err(())),
        ("/public/..%0a/x", Err(())),
        ("/public/%252e%252e%0a", Err(())),
        ("/public/x/..%0a", Ok(None)),
        ("/public/.%0a", Ok(None)),
        ("/public/x%0ay", Ok(None)),
        ("/x%0ay", Ok(None)),
        ("/public/%0a%0a%0a%0a", Ok(None)),
        ("/public/%0a%0a%0a%0a%0a", Err(())),
        ("/public;x/y", Err(())),
        ("/public/../../admin", Err(())),
        // Parsed as a URL and then decoded: `/public/..`.
        ("/./public%2f..", normal("/")),
        ("/.\\public%2f..", Err(())),
        // And then normalised like any other path.
        ("/s%2fa/../public", normal("/s/public")),
        ("/s%2fa/../x%2f..%2fpublic", normal("/s/public")),
        // Cleaned as it is written, with slashes merged first: `/public`, and `/x%2f..%2fpublic`.
        ("/a%2fb%2fd/../public/%2e%2e/..", normal("/a/")),
        ("/s%2fa//../x%2f..%2fpublic", normal("/s/public")),
        // A proxy that decodes a path and sends it on makes a query or a fragment of what follows.
        ("/public%3f", Err(())),
        ("/public%3fa=1", Err(())),
        ("/public%23x", Err(())),
        ("/public%253fx", Err(())),
        ("/x/..%2fpublic%3f", Err(())),
        ("/public/x%3fy", Ok(None)),
        ("/x%3fy/public", Ok(None)),
        ("/x%2523", Ok(None)),
        // Matched as it is written.
        ("/%70ublic/x", normal("/public/x")),
        ("/public/%7Ex", Ok(None)),
        // Harmless as received; in the normal form `/public/..\x`, a backslash read as a slash would lead out.
        ("/./public/a\\b/../..\\x", Err(())),
    ] {
        assert_eq!(verdict(raw), expected, "{raw}");
    }
}

/// `/public` is restricted here, and everything goes to one backend: no reading of a path that passes as unrestricted
/// may lead to it.
#[test]
fn no_reading_leads_to_a_restricted_path() {
    for raw in [
        // Tomcat cuts parameters up to the next literal slash, and decodes the rest.
        "/public;%2f../secret",
        "/public;x%2F..%2f../secret",
        "/public/;%2f..%2f../secret",
        "/x/..;/public;%2f../secret",
        "/public%3b%2f../secret",
        // The same with backslashes as slashes, before or after.
        "/public;%5c../secret",
        "/public;\\../secret",
        "/public\\;%2f../secret",
        "/x\\..\\public;%2f../secret",
        // Without merged slashes, `..` removes only the empty segment.
        "/public;/;/%2e/..",
        "/public;/;/../secret",
        "/public;//%2e%2e/secret",
        "/public//;/..;/../secret",
        "/public/%2f;x/../../secret",
        "/public/x;%2f/../../secret",
        // Escaped slashes that stay escaped, next to parameters that are cut.
        "/public;x/..%2fsecret",
        "/public%3bx%2f../secret",
        // Dots that are not resolved.
        "/public%2f..%2fsecret",
        "/public%2f%2e%2e%2fsecret",
        // What follows two slashes is a host.
        "//host/public/secret",
        "//host/x/%2e%2e/public/secret",
        "//host/public%2fsecret",
        "///host/public/secret",
        "/\\host/public/secret",
        "//host\\public/secret",
        "//x\\y/public/secret",
        "//x/;/public",
        "//x/%3by/public",
        "/\\/host/public",
        "//host/..;/public/secret",
        // Slashes merged after dots were resolved.
        "//public;//../secret",
        "//public;/\\../secret",
        // Dot segments removed first, and again after the rest was decoded.
        "/s%2fa/../x%2f..%2fpublic",
        "/%2f/s%2fpublic/../public",
        "/s%2fa/..//public%2fd",
        "/s%2fa/../x%2f..%2fpublic;x",
        "/s%2fa/../x;y%2f..%2fpublic",
        "/s%2fa\\..\\x%2f..%2fpublic",
        "/s%2fa/../x%252f..%252fpublic",
        "//host/s%2fa/../x%2f..%2fpublic",
        "/.//host/public",
        // The same as it is written, after slashes were merged.
        "/a%2fb%2fd/../public/%2e%2e/..",
        "/s%2fa//../x%2f..%2fpublic",
        "/s%2fa//../x%252f..%252fpublic",
        "/s%2fa\\\\..\\x%2f..%2fpublic",
        "//host/s%2fa//../x%2f..%2fpublic",
        "//public/%2e%2e/..",
        // Decoded twice.
        "/public;%252f../secret",
        "/public%253b%252f../secret",
    ] {
        let Ok(sent) = verdict(raw) else { continue };
        let sent = sent.unwrap_or_else(|| raw.to_owned());
        for read in others(sent.as_bytes()) {
            assert!(
                !route(&read) || route(sent.as_bytes()),
                "{raw} is sent as {sent}, read as {}",
                String::from_utf8_lossy(&read)
            );
        }
    }
    assert_eq!(verdict("/public;%2f../secret"), Err(()));
    assert_eq!(verdict("/public;/;/%2e/.."), Err(()));
}

/// A path of a file is restricted, and whoever leaves no slash where a dot segment was finds the file.
#[test]
fn a_dot_behind_a_file_does_not_lead_to_it() {
    let verdict = |raw: &str| {
        let normalised = normalise(raw.as_bytes()).unwrap();
        forward(raw.as_bytes(), &normalised, |path| path == b"/a.html", |chosen, read, _| chosen != read)
    };
    for raw in [
        "/a.html/.",
        "/a.html/%2e",
        "/a.html//.",
        "/a.html%2f.",
        "/a.html/x/..",
        "/a.html/x/%2e%2e",
        "/a%2ehtml%2f",
    ] {
        assert_eq!(verdict(raw), Verdict::Normal(b"/a.html/".to_vec()), "{raw}");
    }
    for raw in [
        "/a.html/.;x",
        "/a.html\\.",
        "/a.html%5c%2e",
        "/a.html/%252e",
        "/a.html/x;/..",
        "/a.html%5c",
        // The path ends at its first `;`, or before blanks.
        "/a.html;/x",
        "/a.html;/../b",
        "/a.html;/./",
        "/a.html%3b/x",
        "/a.html%20",
        "/a.html%09",
        "/a.html%2520",
    ] {
        assert_eq!(verdict(raw), Verdict::Refuse, "{raw}");
    }
    for raw in ["/a.html/", "/b.html/.", "/a.html/x/.", "/."] {
        assert_eq!(verdict(raw), Verdict::Raw, "{raw}");
    }
}

/// How backends read paths, implemented independently of the code under test: Tomcat, Jetty, Spring and Node with
/// their own steps.
fn others(raw: &[u8]) -> Vec<Vec<u8>> {
    let text = |bytes: &[u8]| bytes.iter().map(|b| char::from(*b)).collect::<String>();
    let raw = text(raw);
    let cut =
        |path: &str| path.split('/').map(|it| it.split(';').next().unwrap()).collect::<Vec<_>>().join("/");
    let decode = |path: &str| {
        let mut parts = path.split('%');
        let mut decoded = parts.next().unwrap().to_owned();
        for part in parts {
            match part.get(..2).map(|hex| u8::from_str_radix(hex, 16)) {
                Some(Ok(b)) => decoded.extend([char::from(b)].into_iter().chain(part[2..].chars())),
                _ => decoded.extend(['%'].into_iter().chain(part.chars())),
            }
        }
        decoded
    };
    let dots = |path: &str, merge: bool| {
        let mut kept: Vec<&str> = Vec::new();
        for segment in path.split('/').skip(1).filter(|it| !(merge && it.is_empty())) {
            match segment {
                "." => {}
                ".." => _ = kept.pop(),
                other => kept.push(other),
            }
        }
        format!("/{}", kept.join("/"))
    };
    // `new URL(target, base).pathname`: the number of slashes before the host makes no difference.
    let of_url = |target: &str| {
        let target = target.replace('\\', "/");
        match target.strip_prefix("//") {
            Some(rest) => {
                rest.trim_start_matches('/').split_once('/').map_or("", |(_, path)| path).to_owned()
            }
            None => target[1..].to_owned(),
        }
    };
    let dotted = |path: &str| path.replace("%2e", ".").replace("%2E", ".");
    // The same for RFC 3986, where a backslash is an ordinary character.
    let of_reference = |target: &str| match target.strip_prefix("//") {
        Some(rest) => rest.trim_start_matches('/').split_once('/').map_or("", |(_, path)| path).to_owned(),
        None => target[1..].to_owned(),
    };
    // Who cleans the path as it is written, slash by slash: each in its own way.
    let go = |path: &str| {
        let (mut out, mut at) = (vec!["/"], 0);
        let parts: Vec<_> = path.split('/').collect();
        while let Some(part) = parts.get(at) {
            at += 1;
            match *part {
                "" | "." => {}
                ".." if out.len() > 1 => out.truncate(out.len() - 1),
                ".." => {}
                name => out.push(name),
            }
        }
        format!("/{}", out[1..].join("/"))
    };
    // Node keeps the slash at the end.
    let node = |path: &str| {
        let mut out = String::new();
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            match part {
                ".." => out.truncate(out.rfind('/').unwrap_or(0)),
                name => out = format!("{out}/{name}"),
            }
        }
        if out.is_empty() || path.ends_with('/') { format!("{out}/") } else { out }
    };
    // Python's keeps two slashes at the beginning, but not three.
    let python = |path: &str| {
        let slashes = path.len() - path.trim_start_matches('/').len();
        let mut kept: Vec<&str> = Vec::new();
        for part in path.split('/') {
            if part.is_empty() || part == "." {
                continue;
            }
            if part == ".." {
                kept.pop();
            } else {
                kept.push(part);
            }
        }
        format!("{}{}", if slashes == 2 { "//" } else { "/" }, kept.join("/"))
    };
    // HAProxy's path-merge-slashes and path-strip-dotdot, and Apache, which removes `/./` and then `/x/../`, rewrite
    // what they find.
    let merged = |path: &str| {
        let mut path = path.to_owned();
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        path
    };
    let haproxy = |path: &str| {
        let mut path = format!("{}/", merged(path));
        while let Some(at) = path.find("/../") {
            let before = path[..at].rfind('/').unwrap_or(0);
            path.replace_range(before..at + 3, "");
        }
        path.truncate(path.len().max(2) - 1);
        path
    };
    let apache = |path: &str| {
        let mut path = format!("{}/", merged(path));
        while let Some(at) = path.find("/./") {
            path.replace_range(at..at + 2, "");
        }
        while let Some(at) = path.find("/../") {
            let before = path[..at].rfind('/').unwrap_or(0);
            path.replace_range(before..at + 3, "");
        }
        path.truncate(path.len().max(2) - 1);
        path
    };
    // What a URL parser passes on, and a proxy that normalises by RFC 3986.
    let of_parser = dots(&format!("/{}", dotted(&of_url(&raw))), false);
    let of_proxy = dots(&dotted(&raw), false);
    let cleaned = [go(&raw), node(&raw), python(&raw), haproxy(&raw), apache(&raw)];
    let behind_host = format!("/{}", of_reference(&raw));
    let cleaned = cleaned.into_iter().chain([go(&behind_host), node(&behind_host)]);
    let cleaned = cleaned.flat_map(|path| {
        // Matched as it is, decoded, and cleaned again by the same or the next one.
        let joined = go(&decode(&path));
        let framework = dots(&cut(&decode(&path)), true);
        [decode(&path), joined, framework, node(&decode(&decode(&path))), path]
    });
    let mut read = Vec::new();
    read.extend(cleaned);
    // nginx' `proxy_pass http://backend$uri`, and Go's `url.Parse(base + request.URL.Path)`: what they send is a target
    // with a query, for an origin that decodes it or not.
    let target = |path: &str| path.split(['?', '#']).next().unwrap().to_owned();
    for sent in [dots(&decode(&raw), true), decode(&raw)] {
        let got = target(&sent);
        let behind = target(&dots(&decode(&got), true));
        read.extend([decode(&got), dots(&decode(&got), false), dots(&decode(&got), true), behind, got]);
    }
    read.extend([
        decode(&of_parser),
        decode(&of_proxy),
        dots(&dots(&decode(&cut(&raw)), false), true),
        dots(&dots(&cut(&decode(&raw)), false), true),
        dots(&decode(&raw), true).split('\n').next().unwrap().to_owned(),
    ]);
    for merge in [false, true] {
        for path in [
            format!("/{}", of_url(&raw)),
            decode(&format!("/{}", of_url(&raw))),
            decode(&format!("/{}", of_reference(&raw))),
            decode(&cut(&raw)),
            cut(&decode(&raw)),
            decode(&cut(&raw)).replace('\\', "/"),
            cut(&decode(&raw).replace('\\', "/")),
            decode(&cut(&raw.replace('\\', "/"))),
            decode(&raw),
            decode(&decode(&raw)),
            decode(&cut(&decode(&raw))),
            decode(&cut(&decode(&raw).replace('\\', "/"))),
            cut(&decode(&decode(&raw))),
            decode(&decode(&cut(&raw))),
            decode(&decode(&cut(&raw.replace('\\', "/")))),
            decode(&cut(&decode(&raw.replace('\\', "/")))),
            cut(&decode(&raw.replace('\\', "/"))),
            decode(&raw.replace('\\', "/")),
            decode(&of_parser),
            decode(&of_proxy),
            cut(&decode(&of_proxy)),
            decode(&cut(&of_proxy)),
            decode(&cut(&of_parser)),
            decode(&decode(&of_proxy)),
            decode(&format!("/{}", of_url(&of_proxy))),
        ] {
            read.push(dots(&path, merge));
        }
    }
    read.into_iter().map(|path| path.chars().map(|c| c as u8).collect()).collect()
}

/// nginx' state machine in a simple form: slash by slash, decoding each octet when it is met.
fn slow(raw: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        if raw[at] == b'%' {
            let digits = std::str::from_utf8(raw.get(at + 1..at + 3)?).ok()?;
            if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
                return None;
            }
            decoded.push(u8::from_str_radix(digits, 16).ok().filter(|&b| b != 0)?);
            at += 3;
        } else {
            decoded.push(raw[at]);
            at += 1;
        }
    }
    let mut path = decoded.strip_prefix(b"/").map(|_| decoded.clone())?;
    // Rewritten until nothing is left to rewrite.
    loop {
        let find = |pattern: &[u8]| path.windows(pattern.len()).position(|window| window == pattern);
        if let Some(at) = find(b"//") {
            path.remove(at);
        } else if let Some(at) = find(b"/./") {
            path.drain(at..at + 2);
        } else if path.ends_with(b"/.") {
            path.pop();
        } else if let Some((at, end)) = find(b"/../")
            .map(|at| (at, at + 3))
            .or_else(|| path.ends_with(b"/..").then(|| (path.len() - 3, path.len())))
        {
            let before = path[..at].iter().rposition(|&b| b == b'/')?;
            let is_last = end == path.len();
            path.drain(before..end);
            if is_last {
                path.push(b'/');
            }
        } else {
            return Some(path);
        }
    }
}

fn raw_path() -> impl Strategy<Value = Vec<u8>> {
    let parts = vec![
        "/", "/", "/", ".", "..", "a", "public", "%2e", "%2F", "%", "%41", "%25", "2e", "%5c", "\\", ";",
        "%3b", "%0a", "%252f", "x=1", "%00", "%3f", "%23", "%253F", "\u{e9}", "~",
    ];
    prop::collection::vec(select(parts), 0..12).prop_map(|parts| format!("/{}", parts.concat()).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn fast_is_slow(raw in raw_path()) {
        let fast = normalise(&raw).ok();
        prop_assert_eq!(fast.as_ref().map(|n| n.path.to_vec()), slow(&raw));
        if let Some(fast) = fast.filter(|fast| !fast.suspicious) {
            for (reading, path) in readings(&raw).unwrap() {
                prop_assert_eq!(&path[..], &fast.path[..], "{:?}", reading);
            }
        }
    }

    #[test]
    fn the_normal_form_is_its_own(raw in raw_path()) {
        let Ok(normalised) = normalise(&raw) else { return Ok(()) };
        let again = re_encode(&normalised.path);
        prop_assert_eq!(&normalise(&again).unwrap().path, &normalised.path);
    }

    #[test]
    fn whatever_is_forwarded_is_read_alike_by_all(raw in raw_path()) {
        let Ok(normalised) = normalise(&raw) else { return Ok(()) };
        let sent = match forward(&raw, &normalised, route, |chosen, read, _| chosen != read) {
            Verdict::Raw => raw.clone(),
            Verdict::Normal(target) => target,
            Verdict::Refuse => return Ok(()),
        };
        for (reading, path) in readings(&sent).unwrap() {
            prop_assert_eq!(route(&path), route(&normalised.path), "{:?} of {}", reading, String::from_utf8_lossy(&sent));
        }
        for path in others(&sent) {
            prop_assert_eq!(route(&path), route(&normalised.path), "{}", String::from_utf8_lossy(&sent));
        }
    }
}
