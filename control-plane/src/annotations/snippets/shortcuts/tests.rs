use super::*;
use crate::annotations::snippets::tokens;

fn taken(text: &str) -> Option<Shortcuts> {
    let directives = tokens::directives(text).unwrap();
    let (taken, rest) = Taken::of(&directives, SnippetContext::Server, Rewrites::All);
    rest.is_empty().then_some(taken.shortcuts)
}

/// One line for each answer.
fn shown(shortcuts: &Shortcuts) -> Vec<String> {
    let line = |it: &Shortcut| {
        let tests =
            it.tests.iter().map(|it| format!("{} {:?} {:?}, ", it.subject, it.comparison(), it.value));
        let pattern = it.pattern.iter().map(|pattern| format!("{pattern} -> "));
        let text = it.text.as_deref().unwrap_or("-");
        let what = it.rewrite.map_or_else(|| it.status.to_string(), |_| format!("{:?}", it.rewrite()));
        let what = if it.only_headers == Some(true) { "only".to_owned() } else { what };
        let headers = it.header_changes.iter().flat_map(|list| &list.changes);
        let headers = headers.map(|it| format!(" {:?} {}: {}", it.operation(), it.name, it.value));
        let (tests, pattern) = (tests.collect::<String>(), pattern.collect::<String>());
        format!("{tests}{pattern}{what} {text}{}", headers.collect::<String>())
    };
    let plain = shortcuts.shortcuts.iter().map(line);
    let blocks = shortcuts.blocks.iter().map(|block| {
        let lines: Vec<_> = block.shortcuts.iter().map(line).collect();
        format!("{:?} {}: {}", block.kind(), block.path, lines.join("; "))
    });
    plain.chain(blocks).collect()
}

#[test]
fn answers_are_read_as_nginx_reads_them() {
    for (text, expected) in [
        ("return 403;", "403 -"),
        ("return 301 https://new.test$request_uri;", "301 https://new.test$request_uri"),
        ("return https://new.test/;", "302 https://new.test/"),
        ("return 200 'a b';", "200 a b"),
        ("return 200 '';", "200 "),
        ("return 404 '';", "404 -"),
        ("if ($request_method != POST) { return 405; }", "$request_method Differs \"POST\", 405 -"),
        ("if ( $scheme = http ){ return 400 'no'; }", "$scheme Equals \"http\", 400 no"),
        ("if ($http_x_token = \"\") {\n  return 401;\n}", "$http_x_token Equals \"\", 401 -"),
        ("limit_except GET { deny all; }", "$request_method Lacks \"^(GET|HEAD)$\", 403 -"),
        ("limit_except post PUT { deny all; }", "$request_method Lacks \"^(POST|PUT)$\", 403 -"),
        ("if ($arg_debug) { return 404; }", "$arg_debug IsSet \"\", 404 -"),
        (
            "if ($request_uri ~* \"^/v([0-9])/(.*)\") { return 301 /latest/$2; }",
            "$request_uri FindsAnyCase \"^/v([0-9])/(.*)\", 301 /latest/$2",
        ),
        ("rewrite ^(/board)$ $1/ redirect;", "^(/board)$ -> 302 $1/"),
        ("rewrite ^/a/(.*)$ https://b.test/$1 permanent;", "^/a/(.*)$ -> 301 https://b.test/$1"),
        ("rewrite ^/c$ https://b.test/;", "^/c$ -> 302 https://b.test/"),
        (
            "rewrite ^/.well-known/host-meta /public.php?service=host-meta last;",
            "^/.well-known/host-meta -> Last /public.php?service=host-meta",
        ),
        ("rewrite (?i)/api/(.*) /$1 break;", "(?i)/api/(.*) -> Break /$1"),
        ("rewrite ^(.*)$ $1.html?a=b? last;", "^(.*)$ -> Last $1.html?a=b?"),
        ("rewrite ^/a https://b.test/ last;", "^/a -> 302 https://b.test/"),
        ("rewrite ^/a$ /b;", "^/a$ -> Next /b"),
        ("if ($http_x = a) { rewrite ^/(.*) /a/$1 last; }", "$http_x Equals \"a\", ^/(.*) -> Last /a/$1"),
        ("location = /metrics { return 404; }", "Exact /metrics: 404 -"),
        ("location /admin { deny all; }", "Prefix /admin: 403 -"),
        ("location ^~ /i/ { return 403; }", "Firm /i/: 403 -"),
        ("location ~ ^/(ping|ready) { deny all; return 404; }", "Pattern ^/(ping|ready): 404 -; 403 -"),
        ("location ~* \\.bak$ { deny all; access_log off; }", "PatternAnyCase \\.bak$: 403 -"),
        ("location /m { allow 10.0.0.0/8; deny all; return 404; }", "Prefix /m: 404 -; 403 -"),
        ("location /s { deny 10.0.0.1; return 200 s; }", "Prefix /s: 200 s"),
        ("location /a { allow 10.0.0.0/8; deny all; }", "Prefix /a: 403 -"),
        ("location /a { deny 10.0.0.1; }", "Prefix /a: "),
        ("location /s { stub_status on; allow 10.0.0.0/8; deny all; }", "Prefix /s: 403 -"),
        ("location /a { auth_basic off; return 200 a; }", "Prefix /a: 200 a"),
        ("location /open { allow all; deny all; }", "Prefix /open: "),
        ("location /shut { deny all; allow all; }", "Prefix /shut: 403 -"),
        ("location /inner { internal; deny all; }", "Prefix /inner: "),
        ("location = /robots.txt { allow all; log_not_found off; }", "Exact /robots.txt: "),
        (
            "location ~* \\.(js|css)$ { expires 1y; add_header Cache-Control \"public, immutable\"; }",
            "PatternAnyCase \\.(js|css)$: ",
        ),
        (
            "location /ws { proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; client_max_body_size 9m; }",
            "Prefix /ws: ",
        ),
        ("location /old { add_header X-A b; return 410; }", "Prefix /old: 410 - Add X-A: b"),
        ("location /a { add_header X-A b always; }", "Prefix /a: 404 - AddAlways X-A: b"),
        ("location /a { add_header X-A $arg_a; return 302 /; }", "Prefix /a: 302 / Add X-A: $arg_a"),
        (
            "location ~ ^/(.*)$ { expires 1h; add_header X-A $1; return 204; }",
            "Pattern ^/(.*)$: 204 - Expires : 3600 Add X-A: $1",
        ),
        (
            "location /a { more_set_headers 'X-A: b' 'X-C: d'; add_header X-E f; if ($arg_x) { add_header X-G h; return 302 /b; } return 404; }",
            "Prefix /a: $arg_x IsSet \"\", 302 /b Set X-A: b Set X-C: d Add X-G: h; 404 - Set X-A: b Set X-C: d Add X-E: f",
        ),
        (
            "location ~ ^/v2/ { client_max_body_size 9g; if ($arg_x) { rewrite ^/(.*)$ /x/$1 last; } rewrite ^/(.*)$ /y/$1; }",
            "Pattern ^/v2/: $arg_x IsSet \"\", ^/(.*)$ -> Last /x/$1; ^/(.*)$ -> Next /y/$1",
        ),
        (
            "location /a { rewrite ^/a/(.*) /b/$1 last; deny all; }",
            "Prefix /a: ^/a/(.*) -> Last /b/$1; 403 -",
        ),
        ("location /a { rewrite ^/a/x /b break; }", "Prefix /a: ^/a/x -> 404 -"),
        (
            "location ~ ^/old/(?<rest>.*)$ { add_header X-A $rest; return 301 https://$host/new/$rest$is_args$args; }",
            "Pattern ^/old/(?<rest>.*)$: 301 https://$host/new/$1$is_args$args Add X-A: $1",
        ),
        (
            "location ~* ^/t/(?<t>[a-z]+) { rewrite ^ /x/$t last; }",
            "PatternAnyCase ^/t/(?<t>[a-z]+): (?i)^/t/(?<t>[a-z]+) -> Last /x/$1",
        ),
    ] {
        assert_eq!(shown(&taken(text).unwrap()), [expected], "{text}");
    }
}

#[test]
fn what_is_not_known_exactly_is_not_taken() {
    for text in [
        "return;",
        "return 301;",
        "return 700;",
        "return 200 a b;",
        "return 200 $upstream_status;",
        "return 301 https://$1;",
        "return 302 'https://a.test/ b';",
        "limit_except GET { allow 10.0.0.0/8; deny all; }",
        "limit_except GET { allow all; }",
        "limit_except BREW { deny all; }",
        "limit_except { deny all; }",
        "rewrite ^/a$ b last;",
        "rewrite ^/a$ $host/b last;",
        "rewrite ^/a$ ? last;",
        "rewrite ^/a$ /b?c?d last;",
        "rewrite ^/a$ '/b c' last;",
        "rewrite ^/a$ /b/$upstream_status break;",
        "rewrite ^/(a$ /b break;",
        "rewrite ^/a$ /b other;",
        "rewrite ^/a$ /b last break;",
        "location /a { rewrite ^ /b; return 403; }",
        "location /a { rewrite ^ /b; rewrite ^ /c last; rewrite ^ /d break; }",
        "location /a { rewrite ^ /b; deny all; }",
        "location /a { rewrite ^ /b last; return 200 x; client_max_body_size 9m; }",
        "location = /a { internal; rewrite ^ /b last; }",
        "rewrite ^/(a$ /$1 redirect;",
        "if ($tenant = a) { return 403; }",
        "if ($host = $http_host) { return 403; }",
        "if (-f $request_filename) { return 403; }",
        "if ($http_x ~ '(') { return 403; }",
        "if ($scheme = http) { proxy_pass http://other; }",
        "if ($scheme = http) { add_header A b; return 204; }",
        "if ($scheme = http) { set $x y; }",
        "if ($scheme = http) { }",
        "location /a { proxy_pass http://other; }",
        "location /a { proxy_read_timeout 9s; proxy_pass http://other; }",
        "location /a { add_header X-A $unknown; return 200 c; }",
        "location /a { add_header X-A $1; return 200 c; }",
        "location /a { add_header Content-Type $arg_a; return 200 c; }",
        "location /a { allow 10.0.0.0/8; deny all; if ($arg_a) { return 404; } }",
        "location /a { location /a/b { return 403; } }",
        "location /a { auth_basic x; return 200; }",
        "location @a { return 403; }",
        "location a { return 403; }",
        "location ~ ( { return 403; }",
        "location = /a { internal; return 200 x; }",
        "deny all;",
    ] {
        assert_eq!(taken(text), None, "{text}");
    }
}

#[test]
fn a_text_has_the_type_that_its_block_says() {
    let text =
        "location = /robots.txt { add_header Content-Type text/plain; return 200 'User-agent: *\\n'; }";
    let shortcuts = taken(text).unwrap();
    let answer = &shortcuts.blocks[0].shortcuts[0];
    assert_eq!(answer.media_type.as_deref(), Some("text/plain"));
    assert_eq!(answer.text.as_deref(), Some("User-agent: *\n"));
    let directives =
        tokens::directives("default_type application/json; return 400 '{}'; location /a { return 403; }")
            .unwrap();
    let Taken { shortcuts, .. } = Taken::of(&directives, SnippetContext::Server, Rewrites::All).0;
    assert_eq!(shortcuts.shortcuts[0].default_type.as_deref(), Some("application/json"));
    assert_eq!(shortcuts.blocks[0].shortcuts[0].default_type, None, "it says nothing");
    let types = |text: &str| {
        let shortcuts = taken(text).unwrap();
        let it = &shortcuts.blocks[0].shortcuts[0];
        (it.media_type.clone().unwrap_or_default(), it.default_type.clone().unwrap_or_default())
    };
    let (none, plain) = (String::new(), "text/plain".to_owned());
    let block = |configured: &str| types(&format!("location = /a.json {{ {configured} return 200 x; }}"));
    assert_eq!(block("default_type text/plain;"), (none.clone(), plain.clone()));
    assert_eq!(block("types { } default_type text/plain;"), (plain, none));
    assert!(taken("location = /a { types { text/x a; } return 200 x; }").is_none());
}

/// That of nginx, where an `if` of a host knows no headers.
#[test]
fn an_if_of_a_location_has_headers_of_its_own() {
    let taken = |text: &str| {
        let directives = tokens::directives(text).unwrap();
        let (taken, rest) = Taken::of(&directives, SnippetContext::Location, Rewrites::All);
        (shown(&taken.shortcuts), rest.iter().filter(|it| it.name() != "set").count())
    };
    let options = "$request_method Equals \"OPTIONS\", 204 -";
    let whole = |expected: &[&str]| (expected.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), 0);
    for (text, expected) in [
        (
            "if ($request_method = 'OPTIONS') { add_header 'A' '*'; add_header Content-Length 0; return 204; }",
            whole(&[&format!("{options} Add A: *")]),
        ),
        (
            "if ($request_method = OPTIONS) { more_set_headers 'A: $http_origin'; access_log off; return 204; }",
            whole(&[&format!("{options} Set A: $http_origin")]),
        ),
        (
            "if ($http_origin ~ (a|b)) { add_header A $1 always; return 204; }",
            whole(&["$http_origin Finds \"(a|b)\", 204 - AddAlways A: $1"]),
        ),
        ("if ($arg_x) { set $a 1; return 403; }", whole(&["$arg_x IsSet \"\", 403 -"])),
        (
            "if ($arg_x) { set $a 1; add_header A $a; return 204; }",
            whole(&["$arg_x IsSet \"\", 204 - Add A: 1"]),
        ),
        (
            "if ($arg_x) { add_header A b; expires 1h; }",
            whole(&["$arg_x IsSet \"\", only - Add A: b Expires : 3600"]),
        ),
        (
            "if ($arg_x) { add_header A b; } if ($arg_y) { set $a 1; }",
            (whole(&["$arg_x IsSet \"\", only - Add A: b", "$arg_y IsSet \"\", only -"]).0, 1),
        ),
        (
            "set $cors ''; if ($http_origin ~ a) { set $cors 1; } if ($request_method = OPTIONS) { set $cors \"${cors}o\"; }
             if ($cors = 1) { add_header A b; } if ($cors = 1o) { add_header A b; return 204; }",
            (
                whole(&[
                    "$http_origin Finds \"a\", $request_method Differs \"OPTIONS\", only - Add A: b",
                    "$http_origin Finds \"a\", $request_method Equals \"OPTIONS\", 204 - Add A: b",
                ])
                .0,
                2,
            ),
        ),
        (
            "if ($arg_a) { rewrite ^/a$ /b last; add_header X-A b; }",
            whole(&[
                "$arg_a IsSet \"\", only - Add X-A: b",
                "$arg_a IsSet \"\", ^/a$ -> Last /b Add X-A: b",
            ]),
        ),
        (
            "if ($arg_a) { add_header A b; } if ($arg_b) { rewrite ^/a$ /b permanent; } rewrite ^/b$ /c permanent;",
            whole(&[
                "$arg_a IsSet \"\", only - Add A: b",
                "$arg_b IsSet \"\", only -",
                "$arg_b IsSet \"\", ^/a$ -> 301 /b",
                "^/b$ -> 301 /c",
            ]),
        ),
        (
            "if ($arg_a ~ (a)) { rewrite ^/a$ /b permanent; add_header A $1; }",
            whole(&["$arg_a Finds \"(a)\", ^/a$ -> 301 /b Add A: $1"]),
        ),
        ("if ($http_origin ~ (a|b)) { add_header A $1; }", (vec![], 2)),
        ("if ($arg_x) { add_header A b; access_log off; }", (vec![], 3)),
        ("set $a b; if ($arg_x) { add_header A $a; }", whole(&["$arg_x IsSet \"\", only - Add A: b"])),
        (
            "set $a ''; if ($http_origin ~ b) { set $a $http_origin; add_header A $a; }",
            whole(&["$http_origin Finds \"b\", only - Add A: ${http_origin}"]),
        ),
        // It has the value that comes then.
        ("set $a b; if ($arg_x) { add_header A $a; } set $a c;", (vec![], 2)),
        (
            "set $a b; if ($arg_x) { add_header A $a; } if ($arg_y) { rewrite ^/a /b last; }",
            (whole(&["$arg_y IsSet \"\", ^/a -> Last /b"]).0, 2),
        ),
        ("if ($arg_x) { set $args ''; return 403; }", (vec![], 2)),
        ("if ($arg_x) { return 403; return 404; }", (vec![], 3)),
    ] {
        assert_eq!(taken(text), expected, "{text}");
    }
    let text = "if ($arg_x) { set $a 1; return 403; }";
    let (taken, _) = Taken::of(&tokens::directives(text).unwrap(), SnippetContext::Location, Rewrites::All);
    assert!(!taken.needs_snippets());
    let text = "if ($arg_x) { add_header A b; return 403; }";
    let (taken, _) = Taken::of(&tokens::directives(text).unwrap(), SnippetContext::Location, Rewrites::All);
    assert!(taken.needs_snippets());
}

/// In nginx other methods have a configuration of their own, in which nothing is rewritten or returned.
#[test]
fn methods_are_limited_before_anything_is_rewritten() {
    let text = "rewrite ^/a /b break; if ($arg_x) { return 200 x; } limit_except GET { deny all; }";
    assert_eq!(
        taken(text).map(|it| shown(&it)),
        Some(
            ["$request_method Lacks \"^(GET|HEAD)$\", 403 -", "^/a -> Break /b", "$arg_x IsSet \"\", 200 x",]
                .map(str::to_owned)
                .to_vec()
        )
    );
}

#[test]
fn what_is_left_stays_whole() {
    let text = "add_header A b; if ($scheme = http) { proxy_pass http://x; } return 403;";
    let directives = tokens::directives(text).unwrap();
    let (taken, rest) = Taken::of(&directives, SnippetContext::Location, Rewrites::All);
    assert_eq!(shown(&taken.shortcuts), ["403 -"]);
    assert_eq!(rest.iter().map(Directive::name).collect::<Vec<_>>(), ["add_header", "if", "proxy_pass"]);
}

#[test]
fn an_authentication_is_answered_by_a_status() {
    let taken = |text: &str| {
        let directives = tokens::directives(text).unwrap();
        let (taken, rest) = Taken::of(&directives, SnippetContext::Auth, Rewrites::None);
        (shown(&taken.shortcuts), rest.len())
    };
    for (text, expected) in [
        ("if ($request_method = OPTIONS) { return 200; }", "$request_method Equals \"OPTIONS\", 200 -"),
        ("return 204 'let in by $host';", "204 -"),
        (
            "if ($request_uri ~* \"^/(health|ready)$\") { return 200; }",
            "$request_uri FindsAnyCase \"^/(health|ready)$\", 200 -",
        ),
        ("if ($http_x_key = '') { return 401; }", "$http_x_key Equals \"\", 401 -"),
    ] {
        assert_eq!(taken(text), (vec![expected.to_owned()], 0), "{text}");
    }
    for text in [
        "return 404;",
        "return 302 https://b.test/;",
        "rewrite ^ /b permanent;",
        "rewrite ^ /b last;",
        "if ($uri = /health) { return 200; }",
        "if ($arg_key = a) { return 200; }",
        "location /health { return 200; }",
    ] {
        let (taken, rest) = taken(text);
        assert!(taken.is_empty() && rest > 0, "{text}: {taken:?}");
    }
}

#[test]
fn rewrites_are_taken_where_they_may_act() {
    let text =
        "rewrite ^/a /b last; rewrite ^/c /d; location /e { rewrite ^/e /f last; } rewrite ^/g /h redirect;";
    let directives = tokens::directives(text).unwrap();
    let taken = |rewrites| shown(&Taken::of(&directives, SnippetContext::Location, rewrites).0.shortcuts);
    let redirect = "^/g -> 302 /h";
    assert_eq!(taken(Rewrites::None), [redirect]);
    let block = "Prefix /e: ^/e -> Last /f";
    assert_eq!(taken(Rewrites::Flagged), ["^/a -> Last /b", redirect, block]);
    assert_eq!(taken(Rewrites::All), ["^/a -> Last /b", "^/c -> Next /d", redirect, block]);
}

/// `error_page` is left out, too: the client gets the page of the status.
#[test]
fn named_location_is_left_out_with_what_leads_there() {
    let left = |text: &str, place| {
        let (taken, rest) = Taken::of(&tokens::directives(text).unwrap(), place, Rewrites::All);
        let rest: Vec<_> = rest.iter().map(|it| it.name().to_owned()).collect();
        (shown(&taken.shortcuts), rest)
    };
    let text =
        "error_page 403 = @out; location @out { return 302 https://out.test/; } location = /x { deny all; }";
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let denied = names(&["Exact /x: 403 -"]);
    assert_eq!(left(text, SnippetContext::Server), (denied.clone(), names(&["error_page", "location"])));
    assert_eq!(
        left(text, SnippetContext::Location),
        (denied, names(&["error_page", "location", "return"])),
        "nginx has none in a location"
    );
}

#[test]
fn there_is_an_end_to_it() {
    let many = "return 403; ".repeat(MOST + 1);
    assert_eq!(taken(&many), None);
    assert!(taken(&"return 403; ".repeat(MOST)).is_some());
    assert_eq!(taken(&format!("return 403 {};", "a".repeat(MOST_BYTES))), None);
    // Each is small enough by itself.
    let dear = |count: usize| r#"if ($uri ~ "([a-z0-9]{1,900})x") { return 403; } "#.repeat(count);
    assert!(taken(&dear(2)).is_some());
    assert_eq!(taken(&dear(MOST)), None);
}
