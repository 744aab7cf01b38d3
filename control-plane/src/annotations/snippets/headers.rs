//! Header directives of snippets, parsed into types: nginx' `add_header`, `proxy_set_header` and `proxy_hide_header`,
//! and `more_*` of headers-more.
//!
//! **Invariant:** a directive is supported whole and exactly, or not at all: not with an option, a variable without a
//! value, or a header that frames messages.

use std::collections::{BTreeMap, BTreeSet};

use shared::log_format::Value;
use shared::policy::{
    BackendTls, CookieFlagsList, ErrorAnswerList, Header, HeaderChange, HeaderChangeList, HeaderList,
    HeaderOperation, RealIp, SnippetLevel, SnippetVariable, SnippetVariables, Substitutions, TextList,
    ToldWithin,
};
use shared::template::{Part, Template, Variable};

use super::limits::Limits;
use super::lists::Lists;
use super::restriction::OURS;
use super::tokens::{Directive, switch};
use super::variables;
use super::{expires, hints};
use crate::annotations::draft::Draft;
use crate::annotations::value::PATTERN_WITH_VARIABLES;

/// The context of a snippet, as nginx calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SnippetContext {
    /// In the locations of its Ingress.
    Location,
    /// In the servers of its hosts, before their locations.
    Server,
    /// In the request to the authentication.
    Auth,
}

impl SnippetContext {
    /// Where what it says stands among the levels of nginx' configuration that inherit from each other; `None`: it is in
    /// none of them.
    pub(super) fn level(self) -> Option<SnippetLevel> {
        match self {
            Self::Location => Some(SnippetLevel::Locations),
            Self::Server => Some(SnippetLevel::Hosts),
            Self::Auth => None,
        }
    }
}

/// Limit of the directives that are taken from one snippet, and of their bytes.
pub(super) const MOST: usize = 64;
const MOST_BYTES: usize = 16 << 10;

/// Directives that change headers of answers.
pub(super) const CHANGES_ANSWERS: [&str; 4] =
    ["add_header", "expires", "more_clear_headers", "more_set_headers"];

/// What the snippets of one place do to headers.
#[derive(Default, Debug)]
pub(super) struct Headers {
    pub(super) answers: Vec<HeaderChange>,
    pub(super) requests: Vec<Header>,
    /// The `Host` of requests.
    host: Option<String>,
    /// Whether it may be said: no annotation does.
    takes_host: bool,
    /// The client's, which are changed before; what is set instead of one takes its place.
    changed: Vec<Header>,
    pub(super) hidden: Vec<String>,
    /// Variables of the snippet that have a value.
    variables: BTreeSet<String>,
    /// Variables with the value of a header of the authentication response.
    answered: BTreeMap<String, String>,
    /// Request headers with those values.
    pub(super) told: Vec<Header>,
    /// And with such a value between other text.
    pub(super) told_within: Vec<ToldWithin>,
    /// Whether there may be any of these.
    tells_within: bool,
    /// Whether values may have groups of a pattern.
    has_groups: bool,
    /// Whether they may have the user: one who presented a password.
    has_user: bool,
    bytes: usize,
}

impl Headers {
    /// Of a snippet of an Ingress. The groups are those of the pattern of its `rewrite-target`, which nginx matches last; a
    /// user of whom nobody has asked a password has no value here.
    pub(super) fn beside(to: &Draft<'_>, directives: &[Directive], place: SnippetContext) -> Self {
        let is_rewritten = to.text("rewrite-target").is_some();
        let is_location = place == SnippetContext::Location;
        let has_groups = is_location && is_rewritten && !directives.iter().any(|it| it.name() == "rewrite");
        let has_user = is_location && to.text("auth-type").is_some_and(|it| it.trim() == "basic");
        let takes_host = is_location && to.text("upstream-vhost").is_none();
        Self { has_groups, has_user, takes_host, tells_within: true, ..Self::default() }
    }

    /// Values may have these variables.
    pub(super) fn know(&mut self, variables: &[SnippetVariable]) {
        self.variables.extend(variables.iter().map(|it| it.name.clone()));
    }

    /// Takes a directive, if it is a supported one.
    pub(super) fn take(&mut self, directive: &Directive, place: SnippetContext) -> bool {
        if directive.depth > 0 || directive.is_block {
            return false;
        }
        let arguments = directive.arguments();
        self.bytes += arguments.iter().map(String::len).sum::<usize>();
        let of_requests = self.requests.len() + self.changed.len();
        let told = self.told.len() + self.told_within.len();
        if self.answers.len() + of_requests + self.hidden.len() + told >= MOST || self.bytes > MOST_BYTES {
            return false;
        }
        match (directive.name(), place) {
            ("proxy_set_header", SnippetContext::Location | SnippetContext::Auth) => {
                self.set_request(arguments)
            }
            // Each location sets these itself, and so inherits none (nginx).
            ("grpc_set_header" | "proxy_set_header", SnippetContext::Server) => arguments.len() == 2,
            // The request to the service is one of HTTP that has no line in the log; and it asks nobody else itself.
            ("access_log" | "grpc_set_header", SnippetContext::Auth) => true,
            ("auth_request_set", SnippetContext::Auth) => variables::sets_its_own(directive),
            (_, SnippetContext::Auth) => false,
            ("auth_request_set", SnippetContext::Location) => {
                variables::sets_its_own(directive) && self.set_answered(arguments)
            }
            (name, _) if CHANGES_ANSWERS.contains(&name) => self.change_answers(directive),
            ("proxy_hide_header", _) => match arguments {
                [name] if is_name(name) => {
                    self.hidden.push(name.clone());
                    true
                }
                _ => false,
            },
            ("more_set_input_headers", SnippetContext::Location) => self.change_request(arguments, pair),
            ("more_clear_input_headers", SnippetContext::Location) => {
                self.change_request(arguments, |text| Some((pair(text)?.0, "")))
            }
            // These ask for the default behaviour: no version is sent, a backend's certificate is verified only if an
            // annotation asks for it, nobody is asked or inspected by what is not set up, and `Location` headers of a
            // backend are not changed.
            ("auth_basic" | "auth_request" | "proxy_cache", _)
            | ("proxy_redirect", SnippetContext::Location) => matches!(arguments, [word] if word == "off"),
            ("modsecurity" | "proxy_ssl_verify" | "server_tokens", _) => {
                matches!(arguments, [word] if switch(word) == Some(false))
            }
            // The default, too; and a name that ingress-nginx has for another server, which ignores this one.
            ("proxy_pass_request_body" | "proxy_pass_request_headers", _) => {
                matches!(arguments, [word] if switch(word) == Some(true))
            }
            ("server_name", SnippetContext::Server) => matches!(arguments, [name] if name == "_"),
            // How much nginx writes into a log that there is not here.
            ("limit_conn_log_level" | "limit_req_log_level" | "log_not_found" | "log_subrequest", _) => true,
            ("proxy_pass_header", _) => matches!(arguments, [name] if hints::passes_anyway(name)),
            // For fixed responses of the snippet, which read it themselves.
            ("default_type", _) => arguments.len() == 1,
            // Each location sets it itself.
            (name, SnippetContext::Server) => {
                hints::annotation(name).is_some() || hints::switched_off(name).is_some()
            }
            _ => false,
        }
    }

    /// The changes of answers that these directives make, whose values may have groups of a pattern if there are any;
    /// `None`: one of them is not supported.
    pub(super) fn of_answers<'a>(
        mut directives: impl Iterator<Item = &'a Directive>,
        has_groups: bool,
    ) -> Option<Vec<HeaderChange>> {
        let mut headers = Self { has_groups, ..Self::default() };
        let are_fine = directives.all(|it| headers.change_answers(it)) && headers.answers.len() <= MOST;
        are_fine.then_some(headers.answers)
    }

    fn change_answers(&mut self, directive: &Directive) -> bool {
        let arguments = directive.arguments();
        match directive.name() {
            "add_header" => self.add(arguments),
            "expires" => match arguments {
                [text] => expires::value(text)
                    .is_some_and(|value| self.answer(HeaderOperation::Expires, "", &value, &[])),
                _ => false,
            },
            "more_set_headers" => self.change(arguments, pair),
            "more_clear_headers" => self.change(arguments, |text| Some((pair(text)?.0, ""))),
            _ => false,
        }
    }

    /// Applies it to the policies. Returns whether anything takes effect.
    pub(super) fn put(mut self, place: SnippetContext, to: &mut Draft<'_>) -> bool {
        let requests = self.take_requests();
        let Self { answers, host, hidden, told, told_within, .. } = self;
        let tells = !(told.is_empty() && told_within.is_empty());
        let changes_requests = host.is_some() || !requests.is_empty();
        let is_any = tells || changes_requests || !(answers.is_empty() && hidden.is_empty());
        let changes = (!answers.is_empty()).then_some(HeaderChangeList { changes: answers });
        let hidden = (!hidden.is_empty()).then_some(TextList { values: hidden });
        match place {
            SnippetContext::Location => {
                to.location.header_changes = changes;
                to.location.hide_headers = hidden;
                to.auth_told = told;
                to.auth_told_within = told_within;
                to.vhost = host.unwrap_or_default();
                to.location.request_headers =
                    (!requests.is_empty()).then_some(HeaderList { headers: requests });
            }
            SnippetContext::Server => to.of_hosts = Some(OfHosts { changes, hidden, ..OfHosts::default() }),
            SnippetContext::Auth => to.auth_headers = requests,
        }
        is_any
    }

    /// `add_header NAME VALUE [always]`.
    fn add(&mut self, arguments: &[String]) -> bool {
        let (name, value, operation) = match arguments {
            [name, value] => (name, value, HeaderOperation::Add),
            [name, value, always] if always == "always" => (name, value, HeaderOperation::AddAlways),
            _ => return false,
        };
        // nginx replaces these instead of adding them.
        let is_special = ["last-modified", "etag"].contains(&name.to_ascii_lowercase().as_str());
        !is_special && self.answer(operation, name, value, &[])
    }

    /// `more_set_headers [-s STATUSES] 'NAME: VALUE' ...`, and its clearing variants.
    fn change(&mut self, arguments: &[String], read: fn(&str) -> Option<(&str, &str)>) -> bool {
        let Some((statuses, texts)) = limited(arguments) else {
            return false;
        };
        let mut pairs = texts.iter().map(|text| read(text));
        !texts.is_empty()
            && pairs.all(|pair| {
                pair.is_some_and(|(name, value)| {
                    // A name with a space is no header name: `X-Frame-Options DENY`, without its colon, has no effect.
                    name.contains(' ') || self.answer(HeaderOperation::Set, name, value, &statuses)
                })
            })
    }

    fn answer(&mut self, operation: HeaderOperation, name: &str, value: &str, statuses: &[u32]) -> bool {
        let has_name = is_name(name) && !frames(name) || operation == HeaderOperation::Expires;
        let is_fine = has_name && self.is_value(value, Value::is_known_with_headers);
        if is_fine {
            self.answers.push(HeaderChange {
                operation: Some(operation.into()),
                name: name.to_owned(),
                value: value.to_owned(),
                statuses: statuses.to_vec(),
            });
        }
        is_fine
    }

    /// `auth_request_set $VARIABLE $upstream_http_NAME`.
    fn set_answered(&mut self, arguments: &[String]) -> bool {
        let [variable, value] = arguments else {
            return false;
        };
        let header = value.strip_prefix("$upstream_http_").filter(|name| is_name(name));
        let (Some(variable), Some(header)) = (variable.strip_prefix('$'), header) else {
            return false;
        };
        self.answered.insert(variable.to_ascii_lowercase(), header.replace('_', "-"));
        true
    }

    /// `proxy_set_header NAME VALUE`.
    fn set_request(&mut self, arguments: &[String]) -> bool {
        let [name, value] = arguments else {
            return false;
        };
        // These ask for the default behaviour: the client's host, and a WebSocket's upgrade.
        match (name.to_ascii_lowercase().as_str(), value.as_str()) {
            ("host", "" | "$host" | "$http_host" | "$best_http_host") | ("upgrade", "$http_upgrade") => {
                return true;
            }
            ("connection", value) => {
                return ["upgrade", "$connection_upgrade", "$http_connection"]
                    .contains(&value.to_ascii_lowercase().as_str());
            }
            ("host", value) => return self.set_host(value),
            _ => {}
        }
        let variable = value.strip_prefix('$').map(|it| it.trim_matches(['{', '}']).to_ascii_lowercase());
        if let Some(header) = variable.and_then(|it| self.answered.get(&it)) {
            let is_fine = is_name(name) && !frames(name) && !name.eq_ignore_ascii_case("host");
            self.told.extend(is_fine.then(|| Header { name: name.clone(), value: header.clone() }));
            return is_fine;
        }
        match self.within(name, value) {
            Some(told) => {
                self.told_within.push(told);
                true
            }
            None => self.request(name, value),
        }
    }

    /// `proxy_set_header Host VALUE`: nginx sends it beside the `Host` of ingress-nginx' own, here it takes its place.
    fn set_host(&mut self, value: &str) -> bool {
        let uses_groups = Template::parse(value).variables().any(|it| matches!(it, Variable::Capture(_)));
        let is_host = !uses_groups && self.is_value(value, |_| false);
        let host = (PATTERN_WITH_VARIABLES.read)(value).filter(|_| self.takes_host && is_host);
        let is_fine = host.is_some() && self.host.is_none();
        self.host = self.host.take().or(host);
        is_fine
    }

    /// A header whose value is one of the authentication response between other text: `Bearer $token`.
    fn within(&self, name: &str, value: &str) -> Option<ToldWithin> {
        let template = Template::parse(value);
        let (before, variable, after) = match template.parts() {
            [Part::Text(before), Part::Variable(it)] => (&**before, it, ""),
            [Part::Variable(it), Part::Text(after)] => ("", it, &**after),
            [Part::Text(before), Part::Variable(it), Part::Text(after)] => (&**before, it, &**after),
            _ => return None,
        };
        let Variable::Named(variable) = variable else { return None };
        let header = self.answered.get(&**variable).filter(|_| self.tells_within)?;
        let is_text = value.chars().all(|c| (' '..='~').contains(&c));
        let is_fine = is_text && is_name(name) && !frames(name) && !name.eq_ignore_ascii_case("host");
        is_fine.then(|| ToldWithin {
            name: name.to_owned(),
            header: header.clone(),
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    fn change_request(&mut self, arguments: &[String], read: fn(&str) -> Option<(&str, &str)>) -> bool {
        let mut pairs = arguments.iter().map(|text| read(text));
        let ours = |name: &str| OURS.contains(&name.to_ascii_lowercase().as_str());
        !arguments.is_empty()
            && pairs.all(|pair| {
                pair.is_some_and(|(name, value)| {
                    hints::is_set_afterwards(name) || !ours(name) && self.change_of_client(name, value)
                })
            })
    }

    fn change_of_client(&mut self, name: &str, value: &str) -> bool {
        let is_fine = self.is_request(name, value);
        if is_fine {
            self.changed.retain(|it| !it.name.eq_ignore_ascii_case(name));
            self.changed.push(Header { name: name.to_owned(), value: value.to_owned() });
        }
        is_fine
    }

    /// Whether it is text of one line whose variables all have a value. `knows`: whether one of the log has it already.
    fn is_value(&self, value: &str, knows: fn(&Value) -> bool) -> bool {
        let has_value = |variable: &Variable| match variable {
            Variable::Named(name) if self.variables.contains(&**name) => true,
            // What matched the star of the host.
            Variable::Named(name) if **name == *"subdomain" => true,
            Variable::Named(name) => knows(&Value::of(name)),
            Variable::Capture(_) => self.has_groups,
            Variable::User => self.has_user,
            _ => true,
        };
        let template = Template::parse(value);
        value.chars().all(|c| (' '..='~').contains(&c))
            && template.is_moderate()
            && template.variables().all(has_value)
    }

    fn request(&mut self, name: &str, value: &str) -> bool {
        let is_fine = self.is_request(name, value);
        if is_fine {
            self.requests.push(Header { name: name.to_owned(), value: value.to_owned() });
        }
        is_fine
    }

    fn is_request(&self, name: &str, value: &str) -> bool {
        is_name(name)
            && !frames(name)
            && !name.eq_ignore_ascii_case("host")
            && self.is_value(value, |_| false)
    }

    /// The headers of requests: all that are set, and behind them those of the client that are changed.
    pub(super) fn take_requests(&mut self) -> Vec<Header> {
        let mut headers = std::mem::take(&mut self.requests);
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|it| !headers.iter().any(|set| set.name.eq_ignore_ascii_case(&it.name)));
        headers.extend(changed);
        headers
    }
}

/// What a server-snippet says to the locations of its hosts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OfHosts {
    /// Header changes, for locations that change none themselves.
    pub changes: Option<HeaderChangeList>,
    /// Headers that are removed from backends' responses, for locations that hide none themselves.
    pub hidden: Option<TextList>,
    /// Who is let in, to locations without such lists.
    pub lists: Option<Lists>,
    /// TLS settings towards backends, for locations that say none themselves.
    pub tls: Option<BackendTls>,
    /// Flags of backends' cookies, likewise.
    pub cookie_flags: Option<CookieFlagsList>,
    /// Limits of clients, likewise.
    pub limits: Option<Limits>,
    /// Whom clients' addresses are taken from.
    pub real_ip: Option<RealIp>,
    /// Text of answers that is replaced.
    pub substitutions: Option<Substitutions>,
    /// Answers in place of errors.
    pub error_answers: Option<ErrorAnswerList>,
    /// Whether backends' errors have these, for locations that do not say.
    pub intercept_errors: Option<bool>,
    /// Variables that it sets.
    pub variables: Option<SnippetVariables>,
    /// Seconds between two reads of a body, for locations that say none themselves.
    pub client_body_timeout: Option<u32>,
}

impl OfHosts {
    /// What counts of it whether the fleet allows snippets or not (docs/adr/034-shortcuts.md); `None`: nothing.
    pub fn restrictions(&self) -> Option<Self> {
        let only = Self { lists: self.lists.clone(), limits: self.limits.clone(), ..Self::default() };
        (only != Self::default()).then_some(only)
    }
}

/// The statuses of all options `-s`, and the other arguments.
fn limited(arguments: &[String]) -> Option<(Vec<u32>, Vec<&str>)> {
    let (mut statuses, mut others) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument != "-s" {
            others.push(argument.as_str());
            continue;
        }
        for status in arguments.next()?.split_ascii_whitespace() {
            statuses.push(status.parse().ok().filter(|status| (200..600).contains(status))?);
        }
    }
    Some((statuses, others))
}

/// `Name: value`; without a colon or a value, the name alone. `None` for an option or a pattern of names.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let is_plain = !name.is_empty() && !name.starts_with('-') && !name.contains('*');
    is_plain.then_some((name, value.trim_start_matches(' ')))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// Whether a header frames messages or is hop-by-hop.
fn frames(name: &str) -> bool {
    const FRAMES: [&str; 12] = [
        "connection",
        "content-length",
        "date",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    ];
    FRAMES.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str, place: SnippetContext) -> Option<Headers> {
        let mut headers = Headers::default();
        let directives = tokens::directives(text).unwrap();
        directives.iter().all(|it| headers.take(it, place)).then_some(headers)
    }

    fn answers(text: &str) -> Vec<(HeaderOperation, String, String)> {
        let headers = taken(text, SnippetContext::Location).unwrap();
        headers.answers.into_iter().map(|it| (it.operation(), it.name, it.value)).collect()
    }

    #[test]
    fn headers_of_answers_are_read_as_nginx_reads_them() {
        use HeaderOperation::{Add, AddAlways, Expires, Set};
        for (text, operation, name, value) in [
            ("add_header X-Frame-Options DENY;", Add, "X-Frame-Options", "DENY"),
            ("add_header X-A \"a; b\" always;", AddAlways, "X-A", "a; b"),
            ("more_set_headers \"X-A: b: c\";", Set, "X-A", "b: c"),
            ("more_set_headers 'X-Id: $request_id';", Set, "X-Id", "$request_id"),
            ("add_header X-To $upstream_addr;", Add, "X-To", "$upstream_addr"),
            ("more_set_headers X-A;", Set, "X-A", ""),
            ("more_clear_headers 'X-A: b';", Set, "X-A", ""),
        ] {
            assert_eq!(answers(text), [(operation, name.to_owned(), value.to_owned())], "{text}");
        }
        assert_eq!(answers("more_set_headers 'X-A: 1' 'X-B: 2';").len(), 2);
        let statuses =
            |text: &str| taken(text, SnippetContext::Location).map(|it| it.answers[0].statuses.clone());
        assert_eq!(statuses("more_set_headers -s '404 500' -s 403 'X-A: b';"), Some(vec![404, 500, 403]));
        assert_eq!(statuses("more_clear_headers X-A -s 404;"), Some(vec![404]));
        assert_eq!(answers("expires 1h;"), [(Expires, String::new(), "3600".to_owned())]);
        assert_eq!(answers("more_set_headers \"X-Frame-Options DENY\"; server_tokens off;"), []);
        assert_eq!(answers("server_tokens OFF; proxy_ssl_verify Off; proxy_pass_request_body ON;"), []);
        assert!(taken("auth_basic OFF;", SnippetContext::Location).is_none(), "it is the name of a realm");
    }

    #[test]
    fn what_asks_for_the_default_has_no_effect() {
        let is_taken = |text: &str, place| taken(text, place).is_some();
        for text in ["proxy_pass_request_headers on;", "proxy_pass_request_body on;"] {
            assert!(
                is_taken(text, SnippetContext::Location) && is_taken(text, SnippetContext::Server),
                "{text}"
            );
        }
        assert!(!is_taken("proxy_pass_request_headers off;", SnippetContext::Location));
        assert!(is_taken("server_name _;", SnippetContext::Server));
        assert!(!is_taken("server_name other.test;", SnippetContext::Server));
        assert!(!is_taken("server_name _;", SnippetContext::Location));
    }

    #[test]
    fn what_has_no_effect_is_taken() {
        let any = [SnippetContext::Location, SnippetContext::Server];
        for (text, places) in [
            ("limit_req_log_level warn; limit_conn_log_level error; log_not_found off;", &any[..]),
            ("proxy_cache off; proxy_pass_header Authorization;", &any),
            (
                "access_log off; grpc_set_header X-A b; auth_request_set $a $upstream_http_b;",
                &[SnippetContext::Auth],
            ),
            (
                "more_set_input_headers 'X-Forwarded-Proto: https'; more_clear_input_headers X-Real-IP;",
                &any[..1],
            ),
        ] {
            for place in places {
                let headers = taken(text, *place).unwrap_or_else(|| panic!("{text} {place:?}"));
                let Headers { answers, requests, hidden, told, .. } = headers;
                assert_eq!((answers, requests, hidden, told), (vec![], vec![], vec![], vec![]), "{text}");
            }
        }
    }

    #[test]
    fn what_the_authentication_answers_is_told_under_another_name() {
        let text =
            "auth_request_set $user $upstream_http_x_auth_request_user; proxy_set_header X-User $user;";
        let headers = taken(text, SnippetContext::Location).unwrap();
        let told = Header { name: "X-User".into(), value: "x-auth-request-user".into() };
        assert_eq!((headers.told, headers.requests), (vec![told], vec![]));
        for text in [
            "proxy_set_header X-User $user;",
            "auth_request_set $user $upstream_cookie_a; proxy_set_header X-User $user;",
            "auth_request_set $user $upstream_http_x_user; proxy_set_header X-User \"id $user\";",
            "auth_request_set $user $upstream_http_x_user; proxy_set_header Host $user;",
        ] {
            assert!(taken(text, SnippetContext::Location).is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_exactly_is_not_taken() {
        for text in [
            "add_header X-A;",
            "add_header X-A b sometimes;",
            "add_header ETag x;",
            "add_header X-A $upstream_cache_status;",
            "add_header X-A $1;",
            "add_header Content-Length 5;",
            "add_header \"X A\" b;",
            "more_set_headers -s 4xx 'X-A: b';",
            "more_set_headers 'X-A: b' -s;",
            "more_set_headers -s 404;",
            "more_set_headers -t text/html 'X-A: b';",
            "expires modified 1h;",
            "expires $map;",
            "more_clear_headers 'X-*';",
            "more_set_headers 'Transfer-Encoding: chunked';",
            "proxy_set_header X-User $remote_user;",
            "proxy_set_header X-To $upstream_addr;",
            "proxy_set_header X-User $upstream_http_x_user;",
            "proxy_set_header Host other.test;",
            "proxy_set_header Connection close;",
            "more_set_input_headers 'X-Forwarded-For: 1.2.3.4';",
            "proxy_pass_header Server;",
            "proxy_intercept_errors on;",
            "more_set_input_headers -r 'X-A: b';",
            "server_tokens on;",
            "if ($scheme = http) { add_header X-A b; }",
            "return 403;",
        ] {
            assert!(taken(text, SnippetContext::Location).is_none(), "{text}");
        }
    }

    #[test]
    fn headers_of_requests_are_set_or_are_what_they_are_anyway() {
        let requests = |text, place| -> Vec<(String, String)> {
            let mut headers = taken(text, place).unwrap_or_else(|| panic!("{text}"));
            headers.take_requests().into_iter().map(|it| (it.name, it.value)).collect()
        };
        let text = "proxy_set_header X-A $http_x_b; proxy_set_header Accept-Encoding ''; more_clear_input_headers X-C;";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            requests(text, SnippetContext::Location),
            [pair("X-A", "$http_x_b"), pair("Accept-Encoding", ""), pair("X-C", "")]
        );
        let anyway = "proxy_set_header Host $http_host; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"Upgrade\";";
        assert_eq!(requests(anyway, SnippetContext::Location), []);
        assert_eq!(
            requests("proxy_set_header X-A b;", SnippetContext::Server),
            [],
            "each location has its own"
        );
        assert_eq!(requests("proxy_set_header X-A b;", SnippetContext::Auth), [pair("X-A", "b")]);
        let each = "proxy_set_header X-A b; proxy_set_header x-a c;";
        assert_eq!(requests(each, SnippetContext::Location), [pair("X-A", "b"), pair("x-a", "c")]);
        // Of the client's header the last change counts, and none where another one is sent in its place.
        let changed = "more_set_input_headers 'X-A: b' 'X-B: c'; proxy_set_header X-B d; \
                       more_set_input_headers 'x-b: e'; more_clear_input_headers X-A;";
        assert_eq!(requests(changed, SnippetContext::Location), [pair("X-B", "d"), pair("X-A", "")]);
        assert!(taken("add_header X-A b;", SnippetContext::Auth).is_none());
    }

    #[test]
    fn a_snippet_is_taken_up_to_a_size() {
        let many = "add_header X-A b;".repeat(MOST + 1);
        assert!(taken(&many, SnippetContext::Location).is_none());
        let long = format!("add_header X-A {};", "b".repeat(MOST_BYTES + 1));
        assert!(taken(&long, SnippetContext::Server).is_none());
    }
}
