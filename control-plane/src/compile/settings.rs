//! Compiles the fleet's settings from its ConfigMap.

pub mod table;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use shared::name::ObjectName;
use shared::policy::TextList;
use shared::resource::{Guard, Settings};

use self::table::{ALLOW_SNIPPETS, CROSS_NAMESPACE, LOCATION_ONLY, STRICT_PATHS, Status};
use super::referred::Referred;
use super::{allowed, headers, ticket_keys};
use crate::annotations::row::{Reach, Row};
use crate::annotations::snippets::of_fleet::{GLOBAL_AUTH, Outer};
use crate::annotations::{self, Zones, auth, clients, forwarding, log, snippets, value, waf};
use crate::objects::ConfigMap;
use crate::problem::{Fault, Severity, shown};
use crate::reference::{Reference, Use};

/// A list without items, as rows parse it.
const EMPTY_LIST: &str = ",";
/// Lists whose default has items.
const LISTS: [&str; 5] = [
    "no-auth-locations",
    "no-tls-redirect-locations",
    "nginx-status-ipv4-whitelist",
    "nginx-status-ipv6-whitelist",
    "proxy-real-ip-cidr",
];

/// The compiled ConfigMap.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Compiled {
    /// The settings without references: see [`Self::put`].
    pub settings: Settings,
    /// The ConfigMap's problems.
    pub faults: Vec<Fault>,
    /// The objects that it refers to, with the key that refers to each.
    pub refs: BTreeMap<Reference, String>,
    /// The response headers that Ingresses may set.
    pub allowed_headers: BTreeSet<String>,
    /// A configured session ticket key. It is a secret, and never part of the settings.
    pub ticket_key: Option<Bytes>,
    /// Zones in which snippets count requests.
    pub zones: Zones,
}

impl Compiled {
    /// Fills in a referenced object. A missing or unusable object is ignored, as in ingress-nginx; unusable entries are
    /// left out.
    pub fn put(&mut self, reference: &Reference, referred: &Referred) {
        let Some(key) = self.refs.get(reference) else {
            return;
        };
        self.faults.extend(referred.fault(reference, key));
        if let Referred::Entries(entries) = referred {
            let (mut list, mut left_out) = headers::usable(entries);
            let object = reference.object();
            if reference.what == Use::AddHeaders && self.settings.defaults.server_tokens != Some(true) {
                // As in ingress-nginx, whose template clears that header after it has set these.
                let is_kept = |name: &str| !name.eq_ignore_ascii_case("server");
                left_out.extend(
                    list.headers
                        .iter()
                        .filter(|it| !is_kept(&it.name))
                        .map(|it| format!("without server-tokens answers have no {}", it.name)),
                );
                list.headers.retain(|it| is_kept(&it.name));
            }
            self.faults.extend(left_out.into_iter().map(|what| {
                Fault::new(Severity::Warning, key.as_str(), format!("{object}: {what}, it is left out"))
            }));
            match reference.what {
                Use::AddHeaders => self.settings.defaults.add_headers = Some(list),
                Use::ProxySetHeaders => self.settings.defaults.proxy_set_headers = Some(list),
                _ => {}
            }
        }
    }
}

/// The part of a value that counts: what Go parses is taken as it is, so that spaces or a line break around it make it a
/// faulty one (ingress-nginx).
fn taken<'a>(key: &str, configured: &'a str) -> &'a str {
    const OTHERS: [&str; 3] =
        ["http-redirect-code", "proxy-protocol-header-timeout", "proxy-stream-responses"];
    let is_of_go = match Status::of(key) {
        Some(Status::Default(row)) => row.value.words() == value::BOOL.words || OTHERS.contains(&row.name),
        Some(Status::OfIndex) => true,
        _ => false,
    };
    if is_of_go || is_number(key) { configured } else { configured.trim() }
}

/// Whether the values of a key may be shown, as those of the annotation with its row.
pub(crate) fn is_harmless(key: &str) -> bool {
    row_of(key).is_some_and(|row| row.harmless)
}

fn is_number(key: &str) -> bool {
    row_of(key).is_some_and(|row| row.go_number)
}

/// The row of the annotation whose default a key is.
fn row_of(key: &str) -> Option<&'static Row> {
    Status::of(key).and_then(Status::row)
}

/// What an empty text of a key means: Go reads it as false or 0 (ingress-nginx). `None`: the default. That is so for
/// times, too, in which nothing could be done, so that with 0 all requests would fail.
fn meant_by_nothing(row: &Row) -> Option<&'static str> {
    const TIMES: [&str; 4] =
        ["client-body-timeout", "proxy-connect-timeout", "proxy-read-timeout", "proxy-send-timeout"];
    if row.value.words() == value::BOOL.words {
        return Some("false");
    }
    let may_be_0 = row.go_number && !TIMES.contains(&row.name) && row.value.read("0").is_some();
    may_be_0.then_some("0")
}

/// The words of a switch, which nginx reads in any case. (Annotations with others are refused before.)
fn in_lower_case<'a>(row: &Row, text: Cow<'a, str>) -> Cow<'a, str> {
    let is_switch = row.value.words() == value::SWITCH.words;
    if is_switch { Cow::Owned(text.to_ascii_lowercase()) } else { text }
}

/// A value as rows parse it, in decimal: some keys allow numbers in other bases. `None`: it is not a number.
fn in_decimal<'a>(key: &str, text: &'a str) -> Option<Cow<'a, str>> {
    if !is_number(key) {
        return Some(Cow::Borrowed(text));
    }
    value::integer_of_any_base(text).map(|number| Cow::Owned(number.to_string()))
}

/// The fleet's settings and the problems of its ConfigMap. Without a ConfigMap, all defaults.
///
/// An invalid value leaves that key's default; other keys are not affected (ingress-nginx).
pub fn compile(configmap: Option<&ConfigMap>, default_certificate: Option<&ObjectName>) -> Compiled {
    let default_certificate = default_certificate.map(ToString::to_string).unwrap_or_default();
    let settings = Settings { default_certificate, ..Settings::default() };
    let mut compiled = Compiled { settings, ..Compiled::default() };
    let others = Others::of(configmap);
    let zones = zones(configmap);
    let mut levels = Vec::new();
    for (key, configured) in configmap.iter().flat_map(|map| &map.data) {
        compiled.read(key, configured, (others, &zones), &mut levels);
    }
    compiled.zones = zones;
    levels.sort_by_key(|outer| outer.level);
    for outer in levels {
        outer.put(&mut compiled.settings.defaults);
    }
    compiled.bind(configmap);
    compiled.silence(configmap);
    compiled.settings.guards.sort_unstable();
    compiled.settings.guards.dedup();
    compiled
}

impl Compiled {
    /// Addresses of one family that a key of its own says: the decoder of ingress-nginx puts it in place of the first one of
    /// that family in the list.
    fn bind(&mut self, configmap: Option<&ConfigMap>) {
        let said = |row: &'static Row| -> Vec<String> {
            let parsed = |text: &str| annotations::default(row, row.name, text.trim()).serving.location;
            let list = texts_of(configmap, row.name).filter_map(|text| parsed(text).bind_address).last();
            list.map(|list| list.values).unwrap_or_default()
        };
        let own = [said(&clients::BIND_ADDRESS_IPV4), said(&clients::BIND_ADDRESS_IPV6)];
        if own.iter().all(Vec::is_empty) {
            return;
        }
        let families =
            said(&clients::BIND_ADDRESS).into_iter().partition::<Vec<_>, _>(|it| !it.contains(':'));
        let values = own.into_iter().zip([families.0, families.1]);
        let values = values.flat_map(|(own, listed)| {
            let replaced = own.len();
            own.into_iter().chain(listed.into_iter().skip(replaced))
        });
        self.settings.defaults.bind_address = Some(TextList { values: values.collect() });
    }

    /// Writes no log that goes to the null device.
    fn silence(&mut self, configmap: Option<&ConfigMap>) {
        let of = |key| texts_of(configmap, key).next().map(str::trim).filter(|text| !text.is_empty());
        let is_null = |key| of(key).or_else(|| of(log::ACCESS_LOG_PATH.name)) == Some(log::NULL);
        let defaults = &mut self.settings.defaults;
        if is_null("http-access-log-path") {
            defaults.disable_http_access_log = Some(true);
        }
        if is_null("stream-access-log-path") {
            defaults.disable_stream_access_log = Some(true);
        }
    }

    /// Takes in a key. `levels` receives what raw configuration says to inner levels of nginx' configuration.
    fn read(
        &mut self,
        key: &str,
        configured: &str,
        (others, zones): (Others, &Zones),
        levels: &mut Vec<Outer>,
    ) {
        let text = taken(key, configured);
        match Status::of(key) {
            None => {
                let hint = table::hint(key).map(|hint| format!(": {hint}")).unwrap_or_default();
                self.fault(key, Severity::Warning, format!("unknown key, it has no effect{hint}"));
            }
            Some(Status::Default(row)) => self.read_default(row, key, text, others.ask),
            Some(_) if text.trim().is_empty() => {}
            Some(Status::AllowedHeaders) => self.read_allowed_headers(key, text),
            Some(Status::TicketKey) => match ticket_keys::configured(text) {
                Ok(ticket_key) => self.ticket_key = Some(ticket_key),
                Err(reason) => self.fault(key, Severity::Warning, reason),
            },
            Some(Status::Allows(_)) => {
                if let Some(reason) = allowed::complaint(key, text) {
                    self.fault(key, Severity::Warning, reason);
                }
            }
            Some(Status::OfIndex) => {
                if value::boolean(text).is_none() {
                    let (got, counts) = (shown(text), is_default_on(key));
                    let reason = format!("expected true or false, got {got}: {counts} is used");
                    self.fault(key, Severity::Warning, reason);
                }
            }
            Some(Status::Unsupported) => self.fault(key, Severity::Unsupported, "not honoured yet"),
            Some(Status::Snippet) => self.read_snippet(key, text, (others, zones), levels),
            Some(Status::Nginx) => {
                self.fault(key, Severity::Unsupported, "tunes nginx itself and has no effect here");
            }
            Some(Status::Dead) => {
                self.fault(key, Severity::Warning, "has no effect, as in ingress-nginx: remove it");
            }
        }
    }

    /// Takes in raw configuration.
    fn read_snippet(
        &mut self,
        key: &str,
        text: &str,
        (others, zones): (Others, &Zones),
        levels: &mut Vec<Outer>,
    ) {
        const NEVER: &str = "raw nginx configuration is never used";
        let known = key.to_ascii_lowercase();
        match snippets::of_fleet::read(&known, text, zones) {
            Some(Ok(snippet)) if snippet.defaults.real_ip.is_some() && others.trust_beside(&known) => {
                let why = "whose word counts for a client's address is said by keys, too";
                return self.guard(key, format!("{NEVER}, and {why}: {ALL_PATHS}"));
            }
            Some(Ok(snippet)) => {
                self.settings.defaults.overlay(&snippet.defaults);
                levels.push(snippet.outer);
                let faults = snippet.faults.into_iter();
                return faults.for_each(|(severity, reason)| self.fault(key, severity, reason));
            }
            Some(Err(_)) if known == GLOBAL_AUTH && !others.ask => {
                return self.fault(key, Severity::Warning, without_url());
            }
            Some(Err(why)) => {
                return self.guard(key, format!("{NEVER}, and {why}: {ALL_PATHS}"));
            }
            None => {}
        }
        match snippets::restriction(text) {
            Some(why) => self.guard(key, format!("{NEVER}, and {why}: {ALL_PATHS}")),
            None => self.fault(key, Severity::Unsupported, NEVER),
        }
    }

    /// Takes in a key that is the default of an annotation.
    fn read_default(&mut self, row: &'static Row, key: &str, text: &str, asks: bool) {
        if let Some(meant) = meant_by_nothing(row).filter(|_| text.is_empty()) {
            self.row(row, key, meant);
            if row.default != meant {
                let reason = format!("expected {}, got nothing: {meant} is used", row.value.words());
                self.fault(key, Severity::Warning, reason);
            }
            return;
        }
        if text.trim().is_empty() {
            // Unlike other values, an empty list takes the place of its default, and empty times mean those of the annotation
            // and not none (ingress-nginx).
            if LISTS.contains(&row.name) || row.name == auth::GLOBAL_CACHE_DURATION.name {
                self.row(row, key, EMPTY_LIST);
            }
            return;
        }
        let Some(text) = in_decimal(key, text) else {
            let got = shown(text);
            let reason = format!(
                "expected a whole number (octal if it begins with 0), got {got}: the default is used"
            );
            return self.fault(key, Severity::Warning, reason);
        };
        let (denies, configured) = self.row(row, key, &in_lower_case(row, text));
        let is_idle = denies && !asks && is_of_questions(row);
        // Locations may switch this one off, so that proxies decide.
        let is_default = row.name == waf::ENABLE_MODSECURITY.name;
        self.settings.guards.extend((denies && !is_idle && !is_default).then_some(Guard::Addresses));
        self.faults.extend(configured.into_iter().map(|it| if is_idle { idle(it) } else { it }));
    }

    /// Takes in the response headers that Ingresses may set.
    fn read_allowed_headers(&mut self, key: &str, text: &str) {
        let (names, others): (Vec<_>, Vec<_>) =
            value::list(text).map(str::to_owned).partition(|name| headers::is_name(name));
        for other in others {
            let reason = format!("expected names of headers, got {}: left out", shown(&other));
            self.fault(key, Severity::Warning, reason);
        }
        self.allowed_headers.extend(names);
    }

    /// Parses a key by the row that it shares with an annotation: one field, one parser. Returns whether it denies
    /// access, and what to report.
    fn row(&mut self, row: &'static Row, key: &str, text: &str) -> (bool, Vec<Fault>) {
        // Unlike those of annotations, lists of the ConfigMap may have empty items (ingress-nginx).
        let is_of_addresses =
            ["allowlist-source-range", "denylist-source-range", "block-cidrs"].contains(&row.name);
        let listed = is_of_addresses.then(|| value::list(text).collect::<Vec<_>>().join(","));
        let parsed = annotations::default(row, key, listed.as_deref().unwrap_or(text));
        self.refs.extend(parsed.refs.into_keys().map(|reference| (reference, field(key))));
        self.settings.defaults.overlay(&parsed.serving.location);
        self.settings.backend_defaults.overlay(&parsed.backend);
        let denies = parsed.serving.denied.is_some() || parsed.serving.hosts_denied.is_some();
        let configured = parsed.faults.into_iter().map(|fault| {
            // It applies to the whole fleet instead of one Ingress.
            let reaches = [Reach::Paths, Reach::Hosts].map(Reach::as_str);
            let reason = reaches.iter().fold(fault.reason, |reason, reach| reason.replace(reach, ALL_PATHS));
            Fault { field: field(key), reason, ..fault }
        });
        (denies, configured.collect())
    }

    fn guard(&mut self, key: &str, reason: String) {
        self.settings.guards.push(Guard::Addresses);
        self.fault(key, Severity::Unsupported, reason);
    }

    fn fault(&mut self, key: &str, severity: Severity, reason: impl Into<String>) {
        self.faults.push(Fault::new(severity, field(key), reason));
    }
}

/// What other keys say that matters to one.
#[derive(Clone, Copy)]
struct Others {
    /// Somebody is asked about the requests of all locations.
    ask: bool,
    /// Clients' addresses are taken from a header.
    read_headers: bool,
    /// They are taken from the PROXY protocol.
    read_proxy_protocol: bool,
}

impl Others {
    fn of(configmap: Option<&ConfigMap>) -> Self {
        Self {
            ask: texts_of(configmap, auth::GLOBAL_URL.name).any(|text| !text.trim().is_empty()),
            read_headers: [forwarding::USE_FORWARDED_HEADERS.name, forwarding::ENABLE_REAL_IP.name]
                .iter()
                .any(|key| is_on(configmap, key)),
            read_proxy_protocol: is_on(configmap, clients::USE_PROXY_PROTOCOL.name),
        }
    }

    /// Whether they say whose word counts for a client's address beside a snippet: nginx refuses a second header for it on
    /// one level.
    fn trust_beside(self, snippet: &str) -> bool {
        self.read_proxy_protocol || (self.read_headers && snippet == "http-snippet")
    }
}

/// Whether a key says how that is done, and not whom.
fn is_of_questions(row: &Row) -> bool {
    row.name.starts_with("global-auth-") && row.name != auth::GLOBAL_URL.name
}

/// A fault of such a key while nobody is asked: it shuts nobody out.
fn idle(fault: Fault) -> Fault {
    let reason = fault.reason.replace(ALL_PATHS, &without_url());
    Fault { severity: Severity::Warning, reason, ..fault }
}

fn without_url() -> String {
    format!("without {} the key has no effect", auth::GLOBAL_URL.name)
}

/// Whether annotations may refer to objects of other namespaces.
pub fn crosses_namespaces(configmap: Option<&ConfigMap>) -> bool {
    is_on(configmap, CROSS_NAMESPACE)
}

fn zones(configmap: Option<&ConfigMap>) -> Zones {
    Zones::of(texts_of(configmap, "http-snippet").next().unwrap_or_default())
}

/// Whether snippets take effect, as far as they are supported.
pub fn allows_snippets(configmap: Option<&ConfigMap>) -> bool {
    is_on(configmap, ALLOW_SNIPPETS)
}

/// Whether TLS settings of an Ingress towards backends apply to its own locations only.
pub fn is_location_only(configmap: Option<&ConfigMap>) -> bool {
    is_on(configmap, LOCATION_ONLY)
}

/// Whether the webhook rejects Exact and Prefix paths with special characters.
pub fn validates_paths(configmap: Option<&ConfigMap>) -> bool {
    !texts_of(configmap, STRICT_PATHS).any(|text| value::boolean(text) == Some(false))
}

/// The default of a boolean key.
fn is_default_on(key: &str) -> bool {
    key.eq_ignore_ascii_case(STRICT_PATHS)
}

fn is_on(configmap: Option<&ConfigMap>, key: &str) -> bool {
    texts_of(configmap, key).any(|text| value::boolean(text) == Some(true))
}

/// The values of a key, in whatever case it is written.
fn texts_of<'a>(configmap: Option<&'a ConfigMap>, key: &str) -> impl Iterator<Item = &'a str> {
    let data = configmap.into_iter().flat_map(|map| &map.data);
    data.filter(move |(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, text)| &**text)
}

fn field(key: &str) -> String {
    format!("data[{}]", annotations::shown_name(key))
}

/// What a restriction of the fleet comes to that is not enforced.
pub(crate) const ALL_PATHS: &str = "all paths answer 503";

#[cfg(test)]
mod tests;
