//! `firth proxies`: the connected proxies and what each serves.

use std::fmt::Write as _;

use serde::Serialize;
use shared::proto::inspect;

use crate::columns::Columns;
use crate::moment;
use crate::output::printable;

/// One proxy; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Proxy {
    id: String,
    node: String,
    zone: String,
    address: String,
    acked: String,
    in_sync: bool,
    /// It has all that its replica offers, which is something else than what the one that was asked offers.
    in_sync_elsewhere: bool,
    config_behind: u64,
    live_behind: u64,
    refused: Vec<Refused>,
    refused_total: u32,
    diverged: bool,
    /// The replica that it is connected to; empty: the one that was asked.
    replica: String,
    /// That replica does not answer: this is its last known state.
    lost: bool,
    connected: String,
    heard: String,
    apply_us: u64,
    /// Seconds without a stream; null: it is connected.
    silent_seconds: Option<u64>,
    /// Seconds for which it has been behind; null: it is up to date.
    behind_seconds: Option<f64>,
    #[serde(skip)]
    age: String,
}

/// A resource that a proxy has and refuses.
#[derive(Debug, Serialize)]
pub(super) struct Refused {
    kind: String,
    key: String,
    version: String,
    code: String,
    reason: String,
    serving_last_good: bool,
}

/// The printed form of the response.
pub(super) fn views(proxies: Vec<inspect::Proxy>) -> Vec<Proxy> {
    let now = moment::now();
    proxies
        .into_iter()
        .map(|proxy| Proxy {
            age: moment::ago(proxy.heard.as_ref(), now),
            connected: moment::rfc3339(proxy.connected.as_ref()),
            heard: moment::rfc3339(proxy.heard.as_ref()),
            id: proxy.id,
            node: proxy.node,
            zone: proxy.zone,
            address: proxy.address,
            acked: proxy.acked,
            in_sync: proxy.in_sync,
            in_sync_elsewhere: proxy.in_sync_elsewhere,
            config_behind: proxy.config_behind,
            live_behind: proxy.live_behind,
            refused: proxy.refused.into_iter().map(Refused::of).collect(),
            refused_total: proxy.refused_total,
            diverged: proxy.diverged,
            replica: proxy.replica,
            lost: proxy.lost,
            apply_us: proxy.apply_us,
            silent_seconds: proxy.silent.map(|silent| moment::length(&silent).as_secs()),
            behind_seconds: proxy.behind.map(|behind| moment::length(&behind).as_secs_f64()),
        })
        .collect()
}

impl Refused {
    pub(super) fn of(refused: inspect::Refused) -> Self {
        Self {
            kind: refused.kind,
            key: refused.key,
            version: refused.version,
            code: refused.code,
            reason: refused.reason,
            serving_last_good: refused.serving_last_good,
        }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let Self { kind, key, code, reason, serving_last_good, .. } = self;
        let meanwhile = match serving_last_good {
            true => "serves the previous version",
            false => "serves nothing instead",
        };
        printable(&format!("{kind} {key}: {reason} ({code}); {meanwhile}"))
    }
}

/// For people.
pub(super) fn text(proxies: &[Proxy]) -> String {
    if proxies.is_empty() {
        return "no proxy is known here\n".to_owned();
    }
    let mut columns = Columns::new(["ID", "NODE", "ACKED", "STATE", "HEARD"]);
    for proxy in proxies {
        columns.push([
            proxy.id.clone(),
            proxy.node.clone(),
            proxy.acked.clone(),
            state(proxy),
            proxy.age.clone(),
        ]);
    }
    let mut text = columns.render(0);
    for proxy in proxies.iter().filter(|proxy| proxy.refused_total > 0) {
        let _ = writeln!(text, "\n{} refuses {}:", printable(&proxy.id), proxy.refused_total);
        for refused in &proxy.refused {
            let _ = writeln!(text, "  {}", refused.line());
        }
        let hidden =
            usize::try_from(proxy.refused_total).map_or(0, |all| all.saturating_sub(proxy.refused.len()));
        if hidden > 0 {
            let _ = writeln!(text, "  and {hidden} more");
        }
    }
    text
}

/// The most important state of a proxy.
fn state(proxy: &Proxy) -> String {
    if proxy.lost {
        return "UNKNOWN: its control plane does not answer".to_owned();
    }
    let mut words = Vec::new();
    if let Some(silent) = proxy.silent_seconds {
        words.push(format!("SILENT for {silent} s"));
    }
    if proxy.diverged {
        words.push("DIVERGED".to_owned());
    }
    if proxy.refused_total > 0 {
        words.push(format!("{} refused", proxy.refused_total));
    }
    match proxy.config_behind.saturating_add(proxy.live_behind) {
        _ if proxy.silent_seconds.is_some() => {}
        _ if proxy.acked.is_empty() => words.push("starting".to_owned()),
        0 if proxy.in_sync => words.push("in sync".to_owned()),
        0 if proxy.in_sync_elsewhere => words.push("in sync with another replica's version".to_owned()),
        0 => words.push("catching up".to_owned()),
        behind => words.push(match proxy.behind_seconds {
            Some(seconds) if seconds >= 1.0 => format!("{behind} behind for {seconds:.0} s"),
            _ => format!("{behind} behind"),
        }),
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> inspect::Proxy {
        inspect::Proxy {
            id: "node-a-0011223344556677".to_owned(),
            node: "node-a".to_owned(),
            acked: "1f3a92c04d7e".to_owned(),
            in_sync: true,
            ..inspect::Proxy::default()
        }
    }

    fn shown(proxies: Vec<inspect::Proxy>) -> Vec<Proxy> {
        views(proxies)
    }

    #[test]
    fn nobody_is_said_in_words_and_as_an_empty_array() {
        assert_eq!(text(&shown(vec![])), "no proxy is known here\n");
        assert_eq!(serde_json::to_string(&shown(vec![])).unwrap(), "[]");
    }

    #[test]
    fn states_name_what_is_wrong() {
        let behind = inspect::Proxy { in_sync: false, config_behind: 2, live_behind: 1, ..proxy() };
        let for_long = prost_types::Duration { seconds: 7, nanos: 500_000_000 };
        let stuck = inspect::Proxy { behind: Some(for_long), ..behind.clone() };
        let silent = inspect::Proxy { silent: Some(for_long), ..proxy() };
        let refusing = inspect::Proxy {
            refused: vec![inspect::Refused {
                kind: "route".to_owned(),
                key: "a/b/c".to_owned(),
                code: "schema".to_owned(),
                reason: "needs schema 2".to_owned(),
                serving_last_good: true,
                ..inspect::Refused::default()
            }],
            refused_total: 300,
            diverged: true,
            ..proxy()
        };
        let text = text(&shown(vec![proxy(), behind, stuck, silent, refusing]));
        assert!(text.contains("3 behind for 8 s"), "{text}");
        assert!(text.contains("SILENT for 7 s  "), "{text}");
        assert!(text.contains("in sync"), "{text}");
        assert!(text.contains("3 behind"), "{text}");
        assert!(text.contains("DIVERGED, 300 refused, in sync"), "{text}");
        assert!(
            text.contains("  route a/b/c: needs schema 2 (schema); serves the previous version"),
            "{text}"
        );
        assert!(text.contains("and 299 more"), "{text}");
        assert_eq!(text.matches(" refuses ").count(), 1, "{text}");
    }

    #[test]
    fn a_refused_resource_says_what_is_served_meanwhile() {
        for (serving_last_good, meanwhile) in
            [(true, "serves the previous version"), (false, "serves nothing instead")]
        {
            let refused = inspect::Refused {
                kind: "host".to_owned(),
                key: "a.test".to_owned(),
                code: "invalid".to_owned(),
                reason: "odd".to_owned(),
                serving_last_good,
                ..inspect::Refused::default()
            };
            assert_eq!(Refused::of(refused).line(), format!("host a.test: odd (invalid); {meanwhile}"));
        }
    }

    #[test]
    fn each_state_is_a_word() {
        let span = |nanos| Some(prost_types::Duration { seconds: 0, nanos });
        let late = |nanos| inspect::Proxy { in_sync: false, live_behind: 1, behind: span(nanos), ..proxy() };
        for (proxy, expected) in [
            (proxy(), "in sync"),
            (inspect::Proxy { in_sync: false, ..proxy() }, "catching up"),
            (
                inspect::Proxy { in_sync: false, in_sync_elsewhere: true, ..proxy() },
                "in sync with another replica's version",
            ),
            (inspect::Proxy { in_sync: false, acked: String::new(), ..proxy() }, "starting"),
            (late(999_000_000), "1 behind"),
            (inspect::Proxy { silent: span(0), ..late(0) }, "SILENT for 0 s"),
            (inspect::Proxy { lost: true, ..proxy() }, "UNKNOWN: its control plane does not answer"),
        ] {
            assert_eq!(state(&shown(vec![proxy])[0]), expected);
        }
    }

    #[test]
    fn json_has_the_names_of_the_contract() {
        let json = serde_json::to_value(shown(vec![proxy()])).unwrap();
        assert_eq!(json[0]["id"], "node-a-0011223344556677");
        assert_eq!(json[0]["node"], "node-a");
        assert_eq!(json[0]["acked"], "1f3a92c04d7e");
    }
}
