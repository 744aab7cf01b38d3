use super::*;

fn groups(pattern: &str, text: &[u8]) -> Option<Vec<String>> {
    let pattern = Pattern::path(pattern).unwrap();
    let found = pattern.groups(text, &Steps::new()).unwrap()?;
    Some((0..4).map(|group| String::from_utf8_lossy(found.get(group, text)).into_owned()).collect())
}

#[test]
fn a_path_is_a_prefix_in_any_case() {
    for (pattern, text, fits) in [
        ("/foo", "/FOObar", true),
        ("/foo", "/x/foo", false),
        ("/[A-Z]{3}", "/abcdef", true),
        (r"/a\.b", "/a.b", true),
        (r"/a\.b", "/axb", false),
        (r"/\d+$", "/123", true),
        (r"/\d+$", "/123x", false),
        (r"\/api\/v1", "/api/v1/x", true),
        ("/foo.*", "/foo", true),
    ] {
        assert_eq!(
            Pattern::path(pattern).unwrap().is_match(text.as_bytes(), &Steps::new()),
            Ok(fits),
            "{pattern} {text}"
        );
    }
}

#[test]
fn groups_are_found() {
    let all = |texts: [&str; 4]| Some(texts.map(str::to_owned).to_vec());
    assert_eq!(groups("/something(/|$)(.*)", b"/something/new"), all(["/something/new", "/", "new", ""]));
    assert_eq!(groups("/something(/|$)(.*)", b"/something"), all(["/something", "", "", ""]));
    let group = |text: &str, name| Pattern::path(text).unwrap().group(name);
    for text in ["/(?<Ver>v[0-9])/(.*)", "/(?<Ver>v[0-9])/(?!x)(.*)"] {
        assert_eq!((group(text, "ver"), group(text, "x")), (Some(1), None), "{text}");
    }
    assert_eq!(groups("/a(x)?(y)", b"/ay"), all(["/ay", "", "y", ""]));
    assert_eq!(groups("/a", b"/b"), None);
}

#[test]
fn look_around_and_references_are_matched_by_backtracking() {
    let pattern = Pattern::path("/((?!admin).*)").unwrap();
    assert!(pattern.linear().is_none());
    assert_eq!(pattern.is_match(b"/public", &Steps::new()), Ok(true));
    assert_eq!(pattern.is_match(b"/ADMIN/x", &Steps::new()), Ok(false));
    assert_eq!(groups("/((?!admin).*)", b"/public/x").unwrap()[1], "public/x");
    assert_eq!(Pattern::path(r"/(a+)-\1$").unwrap().is_match(b"/aa-aa", &Steps::new()), Ok(true));
}

#[test]
fn bytes_that_are_no_characters_are_matched() {
    let text = b"/caf\xc3\xa9/\xff\xfe";
    for pattern in ["/caf\u{e9}/(.+)", "/caf\u{e9}/(?=.)(.+)"] {
        let pattern = Pattern::path(pattern).unwrap();
        assert_eq!(pattern.groups(text, &Steps::new()).unwrap().unwrap().get(1, text), b"\xff\xfe");
    }
}

#[test]
fn a_match_that_takes_too_long_is_not_a_mismatch() {
    let pattern = Pattern::path(r"/(?:(a+)\1?)+b").unwrap();
    let text = [b"/".as_slice(), &b"a".repeat(64), b"!"].concat();
    assert_eq!(pattern.is_match(&text, &Steps::new()), Err(Exhausted));
}

/// Two hundred patterns in 45 kB of text, asked about random paths, took 2 MiB each of every thread.
#[test]
fn what_a_thread_keeps_of_all_patterns_is_bounded() {
    let mut random = 1_u32;
    let mut path = || {
        let next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"ab"[(random >> 31) as usize]
        };
        std::iter::once(b'/').chain(std::iter::repeat_with(next).take(3_000)).collect::<Vec<_>>()
    };
    for (one, count) in [("/([ab]*)a[ab]{30}x", 100), ("/(?:[ab]*a[ab]{200}x)", 20)] {
        let patterns: Vec<_> = (0..count).map(|i| Pattern::path(&format!("{one}{i}")).unwrap()).collect();
        for pattern in &patterns {
            // Whether it fits is not asked: some take too long.
            let _ = pattern.is_match(&path(), &Steps::new());
        }
        let kept = CACHES.with_borrow(Caches::kept) + quick::kept();
        assert!((1 << 20..KEPT + quick::KEPT + (1 << 20)).contains(&kept), "{kept}");
    }
}

/// Four hundred of these, in 10 kB of text, took 615 MB.
#[test]
fn together_they_take_what_is_allowed_and_no_more() {
    for part in ["", "(?!x)"] {
        let mut all = Allowance::new(2 << 20);
        let texts = (0..400).map(|i| format!("/p{i}{part}([a-z0-9]{{1,200}})"));
        let compiled: Vec<_> = texts.map(|text| all.compile(|| Pattern::path(&text))).collect();
        let fine = compiled.iter().take_while(|it| it.is_ok()).count();
        assert!((5..200).contains(&fine), "{fine}");
        assert!(compiled[fine..].iter().all(|it| matches!(it, Err(PatternError::TooMuch { .. }))));
        assert!(all.is_spent());
    }
    let mut all = Allowance::new(2 << 20);
    let usual = (0..100).map(|i| format!("/api/v{i}(/|$)((?!admin).*)"));
    assert!(usual.map(|text| all.compile(|| Pattern::path(&text))).all(|it| it.is_ok()), "usual ones fit");
}

/// 7,000 bytes and three hundred groups took a worker eight seconds, and eighteen bytes with five hundred
/// look-ahead patterns took 25.
#[test]
fn what_one_request_may_cost_is_bounded() {
    let path = [&b"/"[..], &b"a".repeat(7000)].concat();
    let groups = |count: usize| Pattern::path(&format!("/{}", "(.*)".repeat(count)));
    assert_eq!(groups(90).unwrap().groups(&path, &Steps::new()), Err(Exhausted));
    assert!(matches!(groups(300), Err(PatternError::Groups { groups: 301 })));
    assert!(groups(3).unwrap().groups(&path, &Steps::new()).unwrap().is_some(), "a usual one fits");

    let slow = Pattern::path("/(?:(a|aa)(?!c))+b0001$").unwrap();
    let (steps, text) = (Steps::new(), b"/aaaaaaaaaaaaaaaaaa");
    let asked = (0..500).take_while(|_| slow.is_match(text, &steps).is_ok()).count();
    assert!(asked <= 10, "{asked}");
    // No step of backtracking fails in it; the delegated part reads the text again at each byte.
    for slow in ["/(?>(?:a(?=.*))*)x0001", "/.*?(?>(?:a(?=.*))*)x0001"] {
        let (slow, steps) = (Pattern::path(slow).unwrap(), Steps::new());
        let asked = (0..500).take_while(|_| slow.is_match(&path, &steps).is_ok()).count();
        assert!(asked <= 5, "{asked}");
    }
    // Neither pushed nor failed: no step is ever counted.
    for endless in [
        "/((?=a)){999999999999}",
        "/((((?=a)){9999}){9999}){9999}",
        "/(?=a)(?:(?!b)c){0,18446744073709551615}",
    ] {
        assert!(matches!(Pattern::path(endless), Err(PatternError::Invalid { .. })), "{endless}");
    }
    assert!(Pattern::path("/(?!a)(?:bb){9999999999999999999}").is_err());
    let literal = Pattern::path(r"/(?=a)\{18446744073709551615}");
    assert!(literal.is_ok_and(|literal| literal.bytes() < 1 << 20));
    let (steps, usual) = (Steps::new(), Pattern::path("/((?!admin).*)").unwrap());
    let long = [&b"/public/"[..], &b"a".repeat(8000)].concat();
    assert!((0..10).all(|_| usual.is_match(&long, &steps).is_ok()), "also with a long path");
    let steps = Steps::new();
    assert!((0..500).all(|_| usual.is_match(b"/public/page", &steps).is_ok()), "usual ones fit");
}

/// With a thousand unreachable states, 3,500 redundant branches took ten times as long as without, and were charged
/// three times as much: a second of a worker for one request.
#[test]
fn alternatives_that_say_nothing_are_few() {
    let of = |empty: usize, rest: &str| {
        Pattern::path(&format!("/(?:[ab](?:{}))*a[ab]{{14}}x{rest}", "|".repeat(empty)))
    };
    for (empty, rest) in [(4_000, ""), (3_500, "|c{1000}x"), (MOST_REPEATED + 1, "")] {
        let error = of(empty, rest).unwrap_err().to_string();
        assert!(error.contains("alternatives that say nothing"), "{error}");
    }
    assert!(
        Pattern::path(&format!("/(?:[ab](?:{})){{40}}", "|".repeat(100))).is_err(),
        "each turn has its own"
    );
    let most = of(MOST_REPEATED, "|c{1000}x").unwrap();
    assert!(most.bytes() < 1 << 20, "{}", most.bytes());
    // Each path is new to the automaton.
    let (steps, mut random) = (Steps::new(), 1_u32);
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"ab"[(random >> 31) as usize]
    };
    let mut path = || std::iter::once(b'/').chain((0..7000).map(|_| next())).collect::<Vec<_>>();
    let asked = (0..500).take_while(|_| most.is_match(&path(), &steps).is_ok()).count();
    assert!(asked <= 20, "{asked}");
    assert!(Pattern::path("/(a|)(/|$)(|b)(?:c||d|)(.*)").is_ok(), "usual ones are taken");
}

/// Nested, each is redundant for a state of its own, and thousands of them surrounded thirty states that consume a
/// byte: 7,000 bytes took a worker 300 ms and were charged as 50.
#[test]
fn optional_parts_of_optional_parts_are_few() {
    for (deep, times) in [(250, 8), (100, 30), (40, 60)] {
        let error =
            Pattern::path(&format!("/(?:[ab]*x{}){{{times}}}y", "?".repeat(deep))).unwrap_err().to_string();
        assert!(error.contains("alternatives that say nothing"), "{error}");
    }
    let optional = "(?:[a-z]{2}(?:-[A-Z]{2})?/)?".repeat(100);
    for usual in [&*optional, "/a????", "(?:(?:(?:a?b)?c)?d)?/x", &"(?:a|b|c|)".repeat(100)] {
        Pattern::path(usual).unwrap();
    }
}

/// A dot in a part that is matched in linear time was rejected.
#[test]
fn parts_around_what_looks_ahead_are_patterns() {
    for (pattern, text, fits) in [
        ("/(?!api)[a-z]{2}/(.*)", "/de/x", true),
        ("/(?!api)(.*)", "/apis", false),
        (r"/(?!internal/)(.+\.css)$", "/a/b.css", true),
        (r"/(?=.*\d).{3}$", "/ab1", true),
    ] {
        let pattern = Pattern::path(pattern).unwrap();
        assert_eq!(pattern.is_match(text.as_bytes(), &Steps::new()), Ok(fits), "{text}");
    }
}

#[test]
fn usual_long_ones_are_taken_and_answer_long_texts() {
    let words: Vec<_> = (0..400).map(|i| format!("crawler{i:03}")).collect();
    let list = Pattern::anywhere_in_any_case(&format!("({})", words.join("|")[..3990].trim_end_matches('|')));
    let (list, steps) = (list.unwrap(), Steps::new());
    let referer = [&b"https://www.example.com/callback?state="[..], &b"crawl3".repeat(350)].concat();
    assert_eq!(list.groups(&referer, &steps), Ok(None));
    assert!(list.groups(b"CRAWLER123", &steps).unwrap().is_some());
    let rewritten = Pattern::path("/([a-z0-9-]{1,253})/(.*)").unwrap();
    let path = [&b"/some-tenant/"[..], &b"deep/".repeat(200)].concat();
    assert!(rewritten.groups(&path, &Steps::new()).unwrap().is_some());
    // Few are counted, and a placeholder of an API's description is no count.
    let mut all = Allowance::new(1 << 20);
    let texts = (0..40).map(|i| format!("/(?!api)[a-z]{{2}}/v{i}/(.*)"));
    let texts = texts.chain((0..40).map(|i| format!("/users/{{id}}/v{i}")));
    assert!(texts.map(|text| all.compile(|| Pattern::path(&text))).all(|it| it.is_ok()));
}

/// The program of each state of the automaton is as large as the set: paths that always need new states are given
/// up.
#[test]
fn a_set_gives_up_rather_than_thrash() {
    let texts: Vec<_> =
        (0..60).map(|i| format!("/(?:[ab]*{}[ab]{{300}}x{i})", if i % 2 == 0 { "a" } else { "b" })).collect();
    let patterns: Vec<_> = texts.iter().map(|text| Pattern::path(text).unwrap()).collect();
    let set = Set::new(patterns.iter(), 4 << 20).unwrap();
    let mut random = 1_u32;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"ab"[(random >> 31) as usize]
    };
    let path: Vec<u8> = std::iter::once(b'/').chain((0..8000).map(|_| next())).collect();
    assert_eq!(set.first(&path, &Steps::new()), Err(Exhausted));
    assert_eq!(set.first(b"/none", &Steps::new()), Ok(None), "others are served");

    let usual: Vec<_> = (0..2000).map(|i| Pattern::path(&format!("/api/v{i}(/|$)(.*)")).unwrap()).collect();
    let set = Set::new(usual.iter(), 4 << 20).unwrap();
    let matches: Vec<_> = (0..2000).map(|i| Pattern::path(&format!("/(?:.*|x{i})")).unwrap()).collect();
    let many = Set::new(matches[1..].iter(), 4 << 20).unwrap();
    assert_eq!(many.first(&path, &Steps::new()), Ok(Some(0)), "the first ends it");
    for (path, found) in [("/API/v7/x", Some(7)), ("/api/v1999", Some(1999)), ("/api/v", None)] {
        assert_eq!(set.first(path.as_bytes(), &Steps::new()), Ok(found), "{path}");
    }
}

#[test]
fn what_is_no_pattern_is_said() {
    let error = Pattern::path("/a(b").unwrap_err();
    assert_eq!(error.to_string(), "not a regular expression: unclosed group");
    assert!(matches!(Pattern::path(&"a".repeat(5000)), Err(PatternError::Long { .. })));
    assert!(Pattern::path("/(a{1000}){1000}").is_err(), "one that grows too large");
    let error = Pattern::path("/(a{1000}){1000}").unwrap_err().to_string();
    assert_eq!(error, "not a regular expression: compiled it takes more than 262144 bytes");
    for text in ["/*a", "/[", r"/\", "/(?P<", "/a{2,1}", "/**"] {
        let _ = Pattern::path(text);
    }
}
