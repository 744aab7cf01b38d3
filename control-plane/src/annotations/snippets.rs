//! Snippets: raw nginx configuration. It is never used as text; if it could restrict access, paths answer 503.
//!
//! Header directives are parsed into types ([`headers`]) and take effect if the fleet allows snippets, as in
//! ingress-nginx; so do TLS settings towards backends ([`upstream_tls`]) and rewrites. Fixed responses are parsed into
//! types, too ([`shortcuts`]), and always take effect: most of them deny access. Directives that are known neither to
//! restrict access, nor to redirect elsewhere, nor to let anybody impersonate somebody are left out and reported. Any
//! other directive might do one of these, and denies.

mod bodies;
mod branches;
mod cookies;
mod definitions;
mod expires;
mod framing;
mod groups;
mod headers;
mod hints;
mod inherited;
mod internal;
pub(crate) mod limits;
mod lists;
pub(crate) mod of_fleet;
mod pace;
mod pages;
mod real_ip;
mod restriction;
mod shortcuts;
pub(crate) mod substitutions;
mod tokens;
mod upstream_tls;
mod variables;
mod worlds;
mod zones;

use std::collections::BTreeSet;

use shared::policy::{LocationPolicy, SnippetVariable, SnippetVariables};
use shared::template::{Template, Variable};

pub use self::headers::OfHosts;
use self::headers::{Headers, SnippetContext};
pub use self::limits::Limits;
pub use self::lists::Lists;
use self::pace::Pace;
use self::restriction::restricts;
use self::shortcuts::{Around, Rewrites, Taken};
pub(crate) use self::upstream_tls::OF_HOST;
pub use self::zones::Zones;
use super::draft::Draft;
use super::row::{Effect, Reach, Risk, Row, Scope, Spec};
use super::value::Grammar;
use crate::problem::{Severity, shown};

/// The directives of a snippet; an error says what nginx would reject, too.
type Snippet = Result<Vec<tokens::Directive>, String>;

/// The words of a text as nginx reads them, without quotes; `None`: it is more, or less, than one directive.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    let mut directives = tokens::directives(text).ok()?;
    let one = directives.pop().filter(|it| directives.is_empty() && !it.is_block)?;
    Some([&[one.name().to_owned()], one.arguments()].concat())
}

const NGINX: Grammar<Snippet> = Grammar {
    words: "configuration of nginx",
    read: |text| Some(tokens::directives(text)),
    good: &["deny all;", "add_header X-A b;"],
    bad: &[],
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "auth-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Auth))),
        doc: "Raw configuration of the request to the authentication",
        ..Row::NEW
    },
    &Row {
        name: "configuration-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Location))),
        doc: "Raw configuration of the paths",
        ..Row::NEW
    },
    &Row {
        name: "server-snippet",
        scope: Scope::Host,
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, it| judge(to, it, SnippetContext::Server))),
        doc: "Raw configuration of the hosts",
        ..Row::NEW
    },
    &Row {
        name: "stream-snippet",
        risk: Risk::Critical,
        value: &Spec(NGINX, Effect::Snippet(|to, _| to.differs(NEVER))),
        doc: "Raw configuration of TCP and UDP",
        ..Row::NEW
    },
];

const NEVER: &str = "raw nginx configuration is never used";

/// Why a directive in a ConfigMap snippet cannot just be left out, if so.
pub(crate) fn restriction(text: &str) -> Option<String> {
    restricts(&tokens::directives(text))
}

/// Whether the backends of an Ingress are spoken to by one of these protocols.
fn speaks(to: &Draft<'_>, protocols: &[&str]) -> bool {
    let protocol = to.text("backend-protocol").unwrap_or_default().trim().to_ascii_uppercase();
    protocols.contains(&protocol.as_str())
}

/// The directives of a location whose backends are spoken to by gRPC, with the names that they have for HTTP: there
/// `grpc_set_header` counts in place of the other.
fn of_grpc(mut directives: Vec<tokens::Directive>) -> Vec<tokens::Directive> {
    let sets = |it: &tokens::Directive, name| {
        it.name() == name && it.depth == 0 && it.arguments().len() == 2 && !it.is_block
    };
    let headers = directives.iter().filter(|it| sets(it, "grpc_set_header"));
    let headers: BTreeSet<_> = headers.filter_map(|it| it.argument()).map(str::to_ascii_lowercase).collect();
    let is_replaced = |it: &tokens::Directive| {
        sets(it, "proxy_set_header")
            && it.argument().is_some_and(|it| headers.contains(&it.to_ascii_lowercase()))
    };
    directives.retain(|it| !is_replaced(it));
    let renamed = |it: tokens::Directive| match sets(&it, "grpc_set_header") {
        true => it.renamed("proxy_set_header"),
        false => it,
    };
    directives.into_iter().map(renamed).collect()
}

/// Whether a directive of a location has no effect: ingress-nginx switches it off itself, or backends are not spoken to over
/// TLS or by gRPC.
fn is_idle(directive: &tokens::Directive, to: &Draft<'_>) -> bool {
    let speaks = |protocols: &[&str]| speaks(to, protocols);
    let name = directive.name();
    let is_off = |annotation: &str| matches!(to.text(annotation), None | Some("off"));
    (name.starts_with("proxy_ssl_") && !speaks(&["HTTPS", "GRPCS", "AUTO_HTTP"]))
        || (name.starts_with("grpc_") && !speaks(&["GRPC", "GRPCS"]))
        || (directive.depth == 0 && hints::switched_off(name).is_some_and(is_off))
}

/// Whether a variable, `$NAME`, is set in the auth-snippet alone, where that has no effect.
pub(super) fn sets_in_vain(to: &Draft<'_>, variable: &str) -> bool {
    let sets = |it: &tokens::Directive| it.name() == "auth_request_set" && it.argument() == Some(variable);
    let in_snippet = |name| all_of(to, name).iter().any(sets);
    in_snippet("auth-snippet") && !in_snippet("configuration-snippet")
}

/// All directives of the server-snippet and of the configuration-snippet.
fn whole(to: &Draft<'_>) -> (Vec<tokens::Directive>, Vec<tokens::Directive>) {
    (all_of(to, "server-snippet"), all_of(to, "configuration-snippet"))
}

/// All directives of a snippet of the Ingress; none if it cannot be read.
fn all_of(to: &Draft<'_>, name: &str) -> Vec<tokens::Directive> {
    to.text(name).and_then(|text| tokens::directives(text).ok()).unwrap_or_default()
}

/// Whether one of these directives names a cache, without which nothing else that is said of one has an effect.
fn caches<'d>(mut directives: impl Iterator<Item = &'d tokens::Directive>) -> bool {
    directives.any(|it| it.name() == "proxy_cache" && it.argument() != Some("off"))
}

/// Puts what a snippet says, if it does: for all of its hosts, or for the location.
fn put<T>(
    said: Option<T>,
    place: SnippetContext,
    to: &mut Draft<'_>,
    of_hosts: fn(&mut OfHosts) -> &mut Option<T>,
    of_location: fn(&mut LocationPolicy) -> &mut Option<T>,
) {
    if said.is_some() {
        *match place {
            SnippetContext::Server => of_hosts(to.of_hosts.get_or_insert_default()),
            _ => of_location(&mut to.location),
        } = said;
    }
}

/// Which rewrites may take effect. None in a location whose annotations use the groups of its declared path, which are
/// then those of the snippet's pattern in nginx. If the location redirects, that would depend on a path that one without a
/// flag has made.
fn rewrites(place: SnippetContext, to: &Draft<'_>) -> Rewrites {
    let uses = |name: &&str| to.text(name).is_some_and(uses_groups);
    match place {
        SnippetContext::Server => Rewrites::All,
        SnippetContext::Auth => Rewrites::None,
        SnippetContext::Location if USE_GROUPS.iter().any(uses) => Rewrites::None,
        SnippetContext::Location if REDIRECTS.iter().any(|name| to.text(name).is_some()) => Rewrites::Flagged,
        SnippetContext::Location => Rewrites::All,
    }
}

/// The variables of annotations that a snippet may set: those that are evaluated behind the rewrite phase.
fn asked_by_annotations(to: &Draft<'_>) -> BTreeSet<String> {
    let texts = ["upstream-hash-by", "upstream-vhost"].into_iter().filter_map(|name| to.text(name));
    texts.flat_map(groups::named).collect()
}

fn some(variables: Vec<SnippetVariable>) -> Option<SnippetVariables> {
    (!variables.is_empty()).then_some(SnippetVariables { variables })
}

const REDIRECTS: [&str; 2] = ["permanent-redirect", "temporal-redirect"];

fn uses_groups(text: &str) -> bool {
    Template::parse(text).variables().any(|it| matches!(it, Variable::Capture(_)))
}

/// Annotations with variables that nginx evaluates after the rewrites of a snippet, `rewrite-target` aside: it is not
/// reached then.
const USE_GROUPS: [&str; 8] = [
    "auth-cache-key",
    "auth-signin",
    "auth-url",
    "mirror-host",
    "mirror-target",
    "upstream-hash-by",
    "upstream-vhost",
    "x-forwarded-prefix",
];

fn judge(to: &mut Draft<'_>, snippet: Snippet, place: SnippetContext) {
    let mut headers = Headers::default();
    let mut taken = Taken::default();
    let (mut lists, mut tls, mut cookies, mut limits, mut addresses) = (None, None, None, None, None);
    let (mut pages, mut intercepts, mut substitutions, mut chunks, mut wait) = (None, None, None, None, None);
    let mut is_internal = false;
    let (mut told, mut closed, mut pace) = (Vec::new(), Vec::new(), Pace::default());
    let asked = asked_by_annotations(to);
    let rest = snippet.map(|mut directives| {
        let (server, location) = whole(to);
        match place {
            SnippetContext::Server => closed = internal::close(&mut directives, &location),
            SnippetContext::Location => closed = internal::close(&mut directives, &server),
            SnippetContext::Auth => {}
        }
        if place == SnippetContext::Location && speaks(to, &["GRPC", "GRPCS"]) {
            directives = of_grpc(directives);
        }
        told = hints::of(&directives, place);
        told.extend(lists::hint(&directives, place, to));
        headers = Headers::beside(to, &directives, place);
        let mut set_before = (place == SnippetContext::Server).then(BTreeSet::new);
        if place == SnippetContext::Location {
            let inherited = inherited::sets(&server, &directives, &asked);
            set_before = Some(inherited::around(&server, &inherited, to));
            directives.splice(0..0, inherited);
        }
        let around = Around { used: asked.clone(), set_before };
        let (mut shortcuts, mut rest) = Taken::beside(&directives, place, rewrites(place, to), around);
        // The path that headers see is that of the client only where nothing rewrites it.
        let keeps_path = place == SnippetContext::Location && to.text("rewrite-target").is_none();
        shortcuts.variables.retain(|it| keeps_path || !worlds::follow_path(&it.cases));
        headers.know(&shortcuts.variables);
        rest.retain(|it| !headers.take(it, place));
        if place == SnippetContext::Location {
            rest.retain(|it| !is_idle(it, to));
            chunks = framing::take(&mut rest);
            is_internal = internal::take(&mut rest);
            pace = Pace::take(&mut rest, to);
        }
        if !caches(server.iter().chain(&location)) {
            rest.retain(|it| it.depth > 0 || it.is_block || !it.name().starts_with("proxy_cache_"));
        }
        if let Some(level) = place.level() {
            tls = upstream_tls::take(&mut rest, place, to);
            cookies = cookies::take(&mut rest, level);
            limits = Limits::take(&mut rest, level);
            addresses = real_ip::take(&mut rest);
            substitutions = substitutions::take(&mut rest);
            wait = bodies::take(&mut rest);
            pages = pages::take(&mut rest, &server);
            intercepts = pages::take_intercepts(&mut rest);
            if place == SnippetContext::Server {
                rest.retain(|it| !pages::is_settled(it, &server, &location));
            }
        }
        lists = Lists::of(&mut rest, place, to);
        taken = shortcuts;
        rest
    });
    let reach = if place == SnippetContext::Server { Reach::Hosts } else { Reach::Paths };
    if let Some(why) = restricts(&rest) {
        to.deny(reach, "has a restriction that is not enforced");
        let what = reach.as_str();
        to.fault(Severity::Unsupported, format!("{NEVER}, and {why}: {what}"));
        return;
    }
    for hint in told {
        to.fault(Severity::Warning, hint);
    }
    for path in &taken.empty {
        let what = if closed.contains(path) { not_led_to(path) } else { unanswered(path) };
        to.fault(Severity::Warning, what);
    }
    let needs_snippets = taken.needs_snippets() || !taken.variables.is_empty();
    let variables = std::mem::take(&mut taken.variables);
    if place == SnippetContext::Server && to.text("configuration-snippet").is_none() {
        // Whichever server-snippet the host has.
        let own = variables.iter().filter(|it| asked.contains(&it.name)).cloned();
        to.location.variables = some(own.collect());
    }
    let variables = some(variables);
    match place {
        SnippetContext::Location => to.location.shortcuts = taken.put(),
        SnippetContext::Server => to.host.shortcuts = taken.put(),
        SnippetContext::Auth => to.auth_answers = taken.put(),
    }
    let has_headers = headers.put(place, to);
    let chunks = chunks.filter(|chunks| !chunks);
    let has_pages = pages.is_some() || intercepts.is_some();
    let changes_answers = cookies.is_some() || has_pages || substitutions.is_some() || chunks.is_some();
    let changes_requests = tls.is_some() || addresses.is_some() || wait.is_some();
    if has_headers || needs_snippets || changes_answers || changes_requests {
        to.needs_snippets();
    }
    match place {
        _ if tls.is_none() => {}
        SnippetContext::Server => to.of_hosts.get_or_insert_default().tls = tls,
        _ if to.text("proxy-ssl-secret").is_some() => to.tls_name = tls.unwrap_or_default().name,
        _ => to.tls_of_snippet = tls,
    }
    put(cookies, place, to, |it| &mut it.cookie_flags, |it| &mut it.proxy_cookie_flags);
    put(substitutions, place, to, |it| &mut it.substitutions, |it| &mut it.substitutions);
    if place != SnippetContext::Auth {
        put(variables, place, to, |it| &mut it.variables, |it| &mut it.variables);
    }
    put(pages, place, to, |it| &mut it.error_answers, |it| &mut it.error_answers);
    put(intercepts, place, to, |it| &mut it.intercept_errors, |it| &mut it.intercept_errors);
    put(addresses, place, to, |it| &mut it.real_ip, |it| &mut it.own_real_ip);
    put(wait, place, to, |it| &mut it.client_body_timeout, |it| &mut it.client_body_timeout);
    if chunks.is_some() {
        to.location.chunked_transfer_encoding = chunks;
    }
    pace.put(&mut to.location);
    to.location.internal = is_internal.then_some(true);
    match (limits, place) {
        (None, _) => {}
        (limits, SnippetContext::Server) => to.of_hosts.get_or_insert_default().limits = limits,
        (Some(limits), _) => limits.put(&mut to.location),
    }
    match (lists, place) {
        (Some(lists), SnippetContext::Server) => to.of_hosts.get_or_insert_default().lists = Some(lists),
        (Some(lists), _) => lists.put(to),
        (None, _) => {}
    }
    if let Some(what) = left_out(&rest.unwrap_or_default(), place) {
        to.differs(what);
    }
}

/// What to say of a block in which nothing answers.
fn unanswered(path: &str) -> String {
    format!("location {}: nothing in it answers, so its requests get 404", shown(path))
}

/// What to say of a block that only a backend could send requests to.
fn not_led_to(path: &str) -> String {
    format!(
        "location {}: only an X-Accel-Redirect of a backend leads there, and a block is not reached by it: 404 (a path with \
         its Service and \"internal\" in the configuration-snippet of its Ingress does the same)",
        shown(path)
    )
}

/// The directives that have no effect and whose absence is visible, in words.
fn left_out(rest: &[tokens::Directive], place: SnippetContext) -> Option<String> {
    // A variable of its own is only used by directives that are parsed or left out.
    let named = rest
        .iter()
        .filter(|it| it.name() != "if" && (it.name() != "set" || !variables::sets_its_own(it)))
        // A variable that the authentication request sets may be used in the sign-in URL.
        .filter(|it| place == SnippetContext::Auth || it.name() != "auth_request_set")
        // Of those a hint was given.
        .filter(|it| place != SnippetContext::Location || !hints::is_set_by_annotation(it));
    let names: BTreeSet<_> = named.map(variables::named).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("{} left out", listed(&names)))
}

/// `a of it is`, `a, b and c of it are`: names of directives that are known.
fn listed(names: &[&str]) -> String {
    match names {
        [one] => format!("{one} of it is"),
        [before @ .., last] => format!("{} and {last} of it are", before.join(", ")),
        [] => String::new(),
    }
}
