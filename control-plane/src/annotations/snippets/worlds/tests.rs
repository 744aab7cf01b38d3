//! What is decided beforehand is what nginx' rewrite phase comes to, for any request.

use proptest::prelude::*;

use super::*;
use crate::annotations::snippets::headers::SnippetContext;
use crate::annotations::snippets::restriction::restricts;
use crate::annotations::snippets::shortcuts::{Around, Rewrites, Taken};
use crate::annotations::snippets::tokens;

/// The values of `$http_a`, `$http_b` and, at first, `$uri`.
type Request = [&'static str; 3];

const VALUES: [&str; 4] = ["", "0", "1", "xy"];
const PATHS: [&str; 2] = ["/a", "/b"];

/// Status and text of the response, if the snippet sends one; status 0 and the path, if it rewrites that.
type Response = Option<(u32, String)>;

/// nginx' way: directive after directive.
struct Interpreter {
    request: Request,
    uri: String,
    set: BTreeMap<String, String>,
}

impl Interpreter {
    fn of(request: Request) -> Self {
        Self { request, uri: request[2].to_owned(), set: BTreeMap::new() }
    }
}

impl Interpreter {
    fn filled(&self, text: &str) -> String {
        Template::replaced(text, |name| {
            let value = match name {
                "http_a" => self.request[0],
                "http_b" => self.request[1],
                "uri" => &self.uri,
                name => self.set.get(name).map_or("", String::as_str),
            };
            Some(value.to_owned())
        })
    }

    fn run(&mut self, directives: &[Directive]) -> Response {
        for Node { directive, inner } in nodes(directives) {
            let arguments = directive.arguments();
            match directive.name() {
                "set" => _ = self.set.insert(arguments[0][1..].to_owned(), self.filled(&arguments[1])),
                "return" => {
                    let text = arguments.get(1).map(|text| self.filled(text));
                    return Some((arguments[0].parse().unwrap(), text.unwrap_or_default()));
                }
                "rewrite" if self.uri.starts_with(arguments[0].trim_start_matches('^')) => {
                    self.uri = self.filled(&arguments[1]);
                    if arguments.len() > 2 {
                        return Some((0, self.uri.clone()));
                    }
                }
                "if" if self.holds(directive) => {
                    let response = self.run(inner);
                    if response.is_some() {
                        return response;
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn holds(&self, directive: &Directive) -> bool {
        let condition = Condition::of(directive).unwrap();
        holds(&self.filled(condition.subject), condition.comparison, &self.filled(condition.value))
    }
}

fn holds(subject: &str, comparison: ShortcutComparison, value: &str) -> bool {
    use ShortcutComparison::{Differs, Equals, Finds, FindsAnyCase, IsSet, Lacks, LacksAnyCase};
    let finds = |any_case: bool| {
        let pattern = if any_case { format!("(?i){value}") } else { value.to_owned() };
        regex::Regex::new(&pattern).unwrap().is_match(subject)
    };
    match comparison {
        IsSet => !["", "0"].contains(&subject),
        Equals => subject == value,
        Differs => subject != value,
        Finds => finds(false),
        FindsAnyCase => finds(true),
        Lacks => !finds(false),
        LacksAnyCase => !finds(true),
        ShortcutComparison::Unspecified => unreachable!(),
    }
}

/// What the shortcuts of a snippet send, or `None` if it denies.
fn sent(directives: &[Directive], request: Request) -> Option<Response> {
    sent_by(directives, request, Around::default())
}

/// The same of a snippet of which it is known that nothing is set before it.
fn sent_first(directives: &[Directive], request: Request) -> Option<Response> {
    sent_by(directives, request, first())
}

fn first() -> Around {
    Around { set_before: Some(BTreeSet::new()), ..Around::default() }
}

fn sent_by(directives: &[Directive], request: Request, around: Around) -> Option<Response> {
    let (taken, rest) = Taken::beside(directives, SnippetContext::Server, Rewrites::All, around);
    if restricts(&Ok(rest)).is_some() {
        return None;
    }
    let mut of_request = Interpreter::of(request);
    for it in taken.put().unwrap_or_default().shortcuts {
        let filled = |text: &str| of_request.filled(text);
        let is_it =
            it.tests.iter().all(|it| holds(&filled(&it.subject), it.comparison(), &filled(&it.value)))
                && it.pattern.iter().all(|it| holds(&of_request.uri, ShortcutComparison::Finds, it));
        if !is_it {
            continue;
        }
        let text = filled(&it.text.clone().unwrap_or_default());
        if it.rewrite() != ShortcutRewrite::Next {
            return Some(Some((it.status, text)));
        }
        of_request.uri = text;
    }
    Some(None)
}

fn requests() -> impl Iterator<Item = Request> {
    let all = VALUES.into_iter().flat_map(|a| VALUES.into_iter().map(move |b| (a, b)));
    all.flat_map(|(a, b)| PATHS.map(|path| [a, b, path]))
}

fn judged(text: &str) -> Vec<Option<Response>> {
    let directives = tokens::directives(text).unwrap();
    requests().map(|request| sent(&directives, request)).collect()
}

#[test]
fn usual_flags_are_decided() {
    for text in [
        "set $f 0; if ($http_a ~* X) { set $f 1; } if ($f = 1) { return 301 https://m.test$request_uri; }",
        "set $f ''; if ($http_a = 1) { set $f A; } if ($http_b) { set $f \"${f}B\"; } if ($f = AB) { return 403; }",
        "set $f 0; if ($http_a) { set $f 1; } if ($http_b) { set $f 1; } if ($f) { return 405 no; } return 404;",
        "set $to https://a.test; if ($http_a = 1) { set $to https://b.test; } return 302 $to/x;",
        "set $o ''; if ($http_a ~ '^x') { set $o $http_a; } if ($o != '') { return 403 $o; }",
        "set $deny 1; if ($http_a = 1) { set $deny 0; } if ($http_b !~ 1) { set $deny 0; } if ($deny = 1) { return 403; }",
        "set $a 1; set $b $a; if ($http_a = $b) { return 403; }",
    ] {
        let text_of_client = text.replace("$request_uri", "");
        let directives = tokens::directives(&text_of_client).unwrap();
        for request in requests() {
            let expected = Interpreter::of(request).run(&directives);
            assert_eq!(sent(&directives, request), Some(expected), "{text} {request:?}");
        }
    }
}

/// As in the recipe for several origins that is copied most, which begins with an `if`.
#[test]
fn what_nothing_has_set_is_empty() {
    for text in [
        "if ($http_a ~ x) { set $c true; } if ($http_b = 1) { set $c \"${c}options\"; } if ($c = trueoptions) { return 204; }",
        "if ($http_a) { set $f 1; } if ($f != 1) { return 204; }",
        "if ($f) { return 204; } if ($f = '') { set $f 1; } if ($f = 1) { return 200 $f; }",
    ] {
        let directives = tokens::directives(text).unwrap();
        for request in requests() {
            let expected = Interpreter::of(request).run(&directives);
            assert_eq!(sent_first(&directives, request), Some(expected), "{text} {request:?}");
            let around = Around { set_before: Some(["c".into(), "f".into()].into()), ..Around::default() };
            assert_eq!(sent_by(&directives, request, around), None, "another snippet may set it: {text}");
        }
    }
    // Somebody else may set what refuses.
    for text in [
        "if ($http_a) { set $f 1; } if ($f = 0) { return 403; }",
        "set $g 0; if ($http_a) { set $f 1; } if ($f = 0) { set $g 1; } if ($g = 1) { return 404; }",
    ] {
        let directives = tokens::directives(text).unwrap();
        assert!(requests().any(|request| sent_first(&directives, request).is_none()), "{text}");
    }
}

#[test]
fn what_is_unknown_denies() {
    for text in [
        "if ($f = 1) { return 403; }",
        "if ($http_a) { set $f 1; } if ($f = 1) { return 403; }",
        "set $f $unknown; if ($f = 1) { return 403; }",
        "set $f 0; if ($http_a ~ (.)) { set $f $1; } if ($f = x) { return 403; }",
        "set $f 0; if ($http_a) { set $f 1; break; } if ($f = 1) { return 403; }",
        "set $f 0; if (-f /tmp/x) { set $f 1; } if ($f = 1) { return 403; }",
        "set $f 0; access_by_lua_block { set $f 1; } if ($f = 1) { return 403; }",
    ] {
        assert!(judged(text).iter().all(Option::is_none), "{text}");
    }
}

/// In a pattern `$x` is an end and an `x`; and nginx decides by the text of the snippet whether it is a redirect.
#[test]
fn only_texts_are_filled_in() {
    let read = |text: &str| {
        let directives = tokens::directives(text).unwrap();
        let (taken, rest) = Taken::of(&directives, SnippetContext::Server, Rewrites::All);
        let one = |it: shared::policy::Shortcut| {
            (it.status, it.pattern.unwrap_or_default(), it.text.unwrap_or_default())
        };
        let is_whole = rest.iter().all(|it| it.name() == "set");
        is_whole.then(|| taken.shortcuts.shortcuts.into_iter().map(one).collect::<Vec<_>>())
    };
    let all = |status, pattern: &str, text: &str| Some(vec![(status, pattern.to_owned(), text.to_owned())]);
    assert_eq!(read("set $x a; rewrite ^/$x|b $x/c permanent;"), all(301, "^/$x|b", "a/c"));
    assert_eq!(read("set $x a; rewrite ^/$x(.*) /$x/$1 break;"), all(0, "^/$x(.*)", "/a/$1"));
    assert_eq!(read("set $to https://b.test; rewrite ^/a $to redirect;"), all(302, "^/a", "https://b.test"));
    assert_eq!(read("set $to https://b.test; return 301 $to/x;"), all(301, "", "https://b.test/x"));
    for text in [
        "set $to https://b.test; rewrite ^/a $to;",
        "set $to https://b.test; return $to;",
        "set $status 403; return $status no;",
        "set $status 403; return $status;",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn many_worlds_are_unknown() {
    let flag = |i: usize| format!("if ($http_a ~ '{i}') {{ set $f \"${{f}}{i}\"; }}");
    let with = |count: usize| {
        let flags: String = (0..count).map(flag).collect();
        judged(&format!("set $f ''; {flags} if ($f = '01') {{ return 403; }}"))
    };
    assert!(with(5).iter().all(Option::is_some), "32 worlds");
    assert!(with(6).iter().all(Option::is_none));
    let one = |i: usize| format!("if ($http_a ~ '{i}') {{ set $f 1; }}");
    let all: String = (0..20).map(one).collect();
    let all = judged(&format!("set $f 0; {all} if ($f = 1) {{ return 403; }}"));
    assert!(all.iter().all(Option::is_some), "a world for each");
}

/// Each of these is followed up to a size only: a tenant chooses the text, and the pipeline waits.
#[test]
fn long_snippets_are_not_followed() {
    let with = |before: &str, count: usize| {
        let before: String = (0..count).map(|i| before.replace('#', &i.to_string())).collect();
        judged(&format!("set $f 0; {before} if ($http_a) {{ set $f 1; }} if ($f) {{ return 403; }}"))
    };
    for (before, few, many) in [
        ("set $v# 1; ", 20, 40),
        ("if ($http_b = #) { set $v 1; } ", 5, 2_000),
        ("if ($f ~ '[a-z]{1,200}#') { set $v 1; } ", 1, 900),
        ("if ($http_b ~ '#') { set $v 1; } ", 5, 2_000),
        ("set $v 123456789; ", 20, 2_000),
    ] {
        assert!(with(before, few).iter().all(Option::is_some), "{before}");
        let is_followed = with(before, many).iter().all(Option::is_some);
        assert!(!is_followed || before.starts_with("set $v#"), "{before}");
    }
    let grows = judged(
        "set $v 12345678; set $v $v$v$v$v$v$v$v$v; set $v $v$v$v$v$v$v$v$v$v$v$v$v$v$v$v$v$v; if ($v) { return 403; }",
    );
    assert!(grows.iter().all(Option::is_none), "its value is too long");
}

#[test]
fn headers_have_the_value_that_all_worlds_have() {
    let header = |text: &str| {
        let directives = tokens::directives(&format!("{text} add_header X-A $v;")).unwrap();
        let (_, rest) = Taken::of(&directives, SnippetContext::Location, Rewrites::All);
        rest.last().unwrap().arguments()[1].clone()
    };
    assert_eq!(header("set $v a; set $v \"$v-$host\";"), "a-${host}");
    assert_eq!(header("set $v a; if ($http_a) { set $w b; }"), "a");
    assert_eq!(header("set $v a; if ($http_a) { set $v b; }"), "$v");
    assert_eq!(header("set $v a; auth_request_set $v $upstream_http_x;"), "$v");
    assert_eq!(header("set $v $1;"), "$v");
    assert_eq!(header("set $v a; rewrite ^/a /b break;"), "a");
    assert_eq!(header("set $v a; rewrite ^/a /b break; set $v b;"), "$v");
    assert_eq!(header("set $v a; rewrite ^/a /b break; if ($http_a) { set $v b; }"), "$v");
    assert_eq!(header("set $v a; rewrite ^/a /b permanent; set $v b;"), "b", "who is redirected gets none");
    assert_eq!(header("set $v $uri; rewrite ^/a /b break;"), "$v", "the path before");
    assert_eq!(header("set $v $host; rewrite ^/a /b break;"), "${host}");
}

/// The cases of `$v`, as `tests: value`.
fn cases(text: &str) -> Vec<String> {
    let directives = tokens::directives(&format!("{text} add_header X-A $v;")).unwrap();
    let (taken, _) = Taken::of(&directives, SnippetContext::Location, Rewrites::All);
    let shown = |it: &SnippetValue| {
        let tests: Vec<_> =
            it.tests.iter().map(|it| format!("{} {:?} {}", it.subject, it.comparison(), it.value)).collect();
        let groups = it.groups_of.map(|at| format!(" of {at}")).unwrap_or_default();
        format!("{}: {}{groups}", tests.join(", "), it.value)
    };
    taken.variables.iter().flat_map(|it| it.cases.iter().map(shown)).collect()
}

#[test]
fn headers_have_the_value_of_the_world_of_a_request() {
    for (text, expected) in [
        ("set $v a; if ($http_a = x) { set $v b; }", &["$http_a Equals x: b", "$http_a Differs x: a"][..]),
        // Else it is what it was before.
        ("if ($http_a = x) { set $v b; }", &["$http_a Equals x: b"]),
        ("if ($host ~* ^(.+)\\.a$) { set $v /$1; }", &["$host FindsAnyCase ^(.+)\\.a$: /${1} of 0"]),
        (
            "set $v 0; if ($http_a = x) { set $v $http_b; } if ($host ~ (.)) { set $v $1$v; }",
            &[
                "$http_a Equals x, $host Finds (.): ${1}${http_b} of 1",
                "$http_a Equals x, $host Lacks (.): ${http_b}",
                "$http_a Differs x, $host Finds (.): ${1}0 of 1",
                "$http_a Differs x, $host Lacks (.): 0",
            ],
        ),
        // By their names.
        ("if ($host ~ ^(?<v>.+)\\.a$) { set $w 1; }", &["$host Finds ^(?<v>.+)\\.a$: ${1} of 0"]),
        (
            "set $v 0; if ($host ~ ^(?<sub>.+)\\.a$) { set $v /$sub; }",
            &["$host Finds ^(?<sub>.+)\\.a$: /${1} of 0", "$host Lacks ^(?<sub>.+)\\.a$: 0"],
        ),
        // The groups are of an earlier pattern, or of none that is known.
        ("set $v $1;", &[]),
        ("if ($http_a = x) { set $v $1; }", &[]),
        ("if ($http_a ~ (.)) { set $w 1; } if ($http_a ~ (.)) { set $v $1; }", &[]),
        ("set $v a; if ($uri ~ b) { set $v c; } rewrite ^/a /b break;", &[]),
        ("set $v a; if ($http_a) { set $v c; } auth_request_set $v $upstream_http_x;", &[]),
    ] {
        assert_eq!(cases(text), expected, "{text}");
    }
}

/// What is sent at once may have the groups of the test before.
#[test]
fn an_answer_has_the_groups_of_its_own_test() {
    let answers = |text: &str| {
        let directives = tokens::directives(text).unwrap();
        let (taken, _) = Taken::of(&directives, SnippetContext::Server, Rewrites::All);
        taken.shortcuts.shortcuts.into_iter().map(|it| it.text.unwrap_or_default()).collect::<Vec<_>>()
    };
    let set = "if ($host ~ ^(.+)\\.old$) { set $sub $1;";
    assert_eq!(answers(&format!("{set} return 301 https://$sub.new/; }}")), ["https://${1}.new/"]);
    let named = "if ($host ~ ^(?<sub>.+)\\.old$) { return 301 https://$sub.new/; }";
    assert_eq!(answers(named), ["https://${1}.new/"]);
    assert_eq!(answers(&format!("{set} }} return 301 https://$sub.new/;")), [""; 0]);
    assert_eq!(answers(&format!("{set} rewrite ^/(.*)$ /$sub/$1 last; }}")), [""; 0]);
}

prop_compose! {
    fn set()(name in "[vw]", text in "(a|0|1|\\$http_a|\\$http_b|\\$\\{v\\}a|\\$\\{w\\}1|\\$v)") -> String {
        format!("set ${name} \"{text}\"; ")
    }
}

fn condition() -> impl Strategy<Value = String> {
    let subject = "\\$(v|w|http_a|http_b)";
    let test = "(| = (0|1|\"\"|xy|\\$v)| != (0|1|\"\"|xy|\\$w)| !?~\\*? (x|0|\"\\^a\\?\\$\"|Y))";
    (subject, test).prop_map(|(subject, test)| format!("if ({subject}{test})"))
}

fn answer() -> impl Strategy<Value = String> {
    "(return (403|404|405|403 \"\\$\\{v\\}t\"|404 \\$http_b)|rewrite \\^/(a|b) /(c|d\\$\\{v\\}|\\$w)( last| break|)); "
}

fn directive() -> impl Strategy<Value = String> {
    let sets = prop::collection::vec(set(), 1..3).prop_map(|sets| sets.concat());
    prop_oneof![
        3 => set(),
        1 => Just("set $v $uri; ".to_owned()),
        4 => (condition(), sets).prop_map(|(condition, sets)| format!("{condition} {{ {sets}}} ")),
        3 => (condition(), answer()).prop_map(|(condition, answer)| format!("{condition} {{ {answer}}} ")),
        1 => answer(),
    ]
}

proptest! {
    #[test]
    fn decided_beforehand_is_as_decided_by_nginx(
        directives in prop::collection::vec(directive(), 1..9),
        is_set in any::<bool>(),
    ) {
        let before = if is_set { "set $v 0; set $w ''; " } else { "" };
        let text = format!("{before}{}", directives.concat());
        let directives = tokens::directives(&text).unwrap();
        let header = tokens::directives(&format!("{text} add_header X-A \"$v\";")).unwrap();
        let (taken, rest) = Taken::beside(&header, SnippetContext::Server, Rewrites::All, first());
        let header = &rest.last().unwrap().arguments()[1];
        for request in requests() {
            let mut interpreter = Interpreter::of(request);
            let expected = interpreter.run(&directives);
            let goes_on = expected.as_ref().is_none_or(|(status, _)| *status == 0);
            if let Some(sent) = sent_first(&directives, request) {
                prop_assert_eq!(sent, expected, "{} {:?}", text, request);
                if goes_on && header != "$v" {
                    prop_assert_eq!(interpreter.filled(header), interpreter.filled("$v"), "{} {:?}", text, request);
                }
                if let Some(variable) = taken.variables.first().filter(|_| goes_on) {
                    // With the path that it has come to.
                    let mut of_request = Interpreter::of(request);
                    of_request.uri.clone_from(&interpreter.uri);
                    let holds = |it: &&SnippetValue| {
                        let filled = |text: &str| of_request.filled(text);
                        it.tests.iter().all(|it| holds(&filled(&it.subject), it.comparison(), &filled(&it.value)))
                    };
                    let value = variable.cases.iter().find(holds).map(|it| of_request.filled(&it.value));
                    prop_assert_eq!(value.unwrap_or_default(), interpreter.filled("$v"), "{} {:?}", text, request);
                }
            }
        }
    }
}
