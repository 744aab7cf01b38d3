//! The printed form of a response to `firth status`.

use std::fmt::Write as _;

use serde::Serialize;
use shared::proto::inspect;

use super::is_seen;
use crate::ask::{pin, problems, proxies, replicas};
use crate::moment;
use crate::output::printable;

/// The state of a version that the control plane has not seen. It says no such word itself.
const UNSEEN: &str = "unseen";
/// The state of an object that exists and is not served here any more.
const NOT_SERVED: &str = "not-served";

/// How many proxies serve an object; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct View {
    object: String,
    resource_version: String,
    version: String,
    state: String,
    deleted: bool,
    total: u32,
    programmed: u32,
    behind: Vec<Proxy>,
    behind_total: u32,
    refused: Vec<Proxy>,
    refused_total: u32,
    silent: Vec<Proxy>,
    silent_total: u32,
    unknown: Vec<Proxy>,
    unknown_total: u32,
    settled: bool,
    /// Empty: the control plane has no peers configured.
    replicas: Vec<replicas::Replica>,
    problems: Vec<problems::Problem>,
    /// Problems that concern every host.
    fleet: Vec<problems::Problem>,
    serves_earlier: bool,
    pin: Option<pin::Pin>,
    /// The requested version, if the control plane has not seen it yet: the state is "unseen" then.
    awaited: Option<String>,
}

/// A proxy that does not serve the newest version.
#[derive(Debug, Serialize)]
struct Proxy {
    id: String,
    node: String,
    zone: String,
    acked: String,
    behind_seconds: Option<f64>,
    silent_seconds: Option<u64>,
    diverged: bool,
    refused: Vec<proxies::Refused>,
}

impl Proxy {
    fn of(proxy: inspect::ObjectProxy) -> Self {
        Self {
            id: proxy.id,
            node: proxy.node,
            zone: proxy.zone,
            acked: proxy.acked,
            behind_seconds: proxy.behind.map(|span| moment::length(&span).as_secs_f64()),
            silent_seconds: proxy.silent.map(|span| moment::length(&span).as_secs()),
            diverged: proxy.diverged,
            refused: proxy.refused.into_iter().map(proxies::Refused::of).collect(),
        }
    }

    fn name(&self) -> String {
        match self.node.as_str() {
            "" => printable(&self.id),
            node => format!("{} ({})", printable(node), printable(&self.id)),
        }
    }
}

impl View {
    pub(super) fn of(status: inspect::StatusResponse, wanted: Option<&str>) -> Self {
        let proxies = |list: Vec<inspect::ObjectProxy>| list.into_iter().map(Proxy::of).collect();
        let awaited = wanted.filter(|_| !is_seen(&status, wanted)).map(str::to_owned);
        Self {
            // All else is about an older version.
            state: if awaited.is_some() { UNSEEN.to_owned() } else { status.state },
            awaited,
            object: status.object,
            resource_version: status.resource_version,
            version: status.version,
            deleted: status.deleted,
            total: status.total,
            programmed: status.programmed,
            behind: proxies(status.behind),
            behind_total: status.behind_total,
            refused: proxies(status.refused),
            refused_total: status.refused_total,
            silent: proxies(status.silent),
            silent_total: status.silent_total,
            unknown: proxies(status.unknown),
            unknown_total: status.unknown_total,
            settled: status.settled,
            replicas: replicas::views(status.replicas),
            problems: problems::views(status.problems),
            fleet: problems::views(status.fleet),
            serves_earlier: status.serves_earlier,
            pin: status.pin.map(pin::view),
        }
    }

    /// In one line, without details that may differ the next time.
    pub(super) fn line(&self) -> String {
        let Self { object, state, total, programmed, .. } = self;
        let object = printable(object);
        if let Some(awaited) = &self.awaited {
            let seen = &self.resource_version;
            return format!(
                "{object}: resource version {} is not here yet, the newest is {seen}",
                printable(awaited)
            );
        }
        if *total == 0 {
            return format!("{object}: unknown: no proxy was heard from");
        }
        let is_elsewhere = state == NOT_SERVED;
        let what = if self.deleted || is_elsewhere { "gone from" } else { "programmed on" };
        let mut line = format!("{object}: {what} {programmed} of {total} proxies");
        let version = match self.resource_version.as_str() {
            "" => self.version.clone(),
            count => format!("{}, resource version {count}", self.version),
        };
        if !version.is_empty() {
            let _ = write!(line, " (version {version})");
        }
        match state.as_str() {
            "programmed" | "deleted" => {}
            "rejected" if self.serves_earlier => line.push_str(": REJECTED; its last good version is served"),
            "rejected" => line.push_str(": REJECTED; nothing of it is served, as no version of it was good"),
            "held-back" => line.push_str(": held back by a pin"),
            // In a cluster, one that nothing refers to is not read: it may have been deleted, too.
            NOT_SERVED if object.starts_with("Secret ") => {
                line.push_str(": NOT SERVED any more, nothing that is served refers to it")
            }
            NOT_SERVED => line
                .push_str(": NOT SERVED any more, it exists and its class or namespace is not served here"),
            "unknown" if self.silent() > 0 => {
                let (silent, all) = (self.silent(), self.replicas.len());
                let _ = write!(line, ": unknown, {silent} of {all} control planes do not answer");
            }
            "unknown" if !self.settled => {
                line.push_str(": unknown, proxies may still reconnect after the start of the control plane")
            }
            state => {
                let _ = write!(line, ": {}", printable(state));
            }
        }
        line
    }

    /// Number of replicas that do not answer.
    fn silent(&self) -> usize {
        self.replicas.iter().filter(|replica| !replica.unreachable.is_empty()).count()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = self.line() + "\n";
        for (what, list, total) in [
            ("refused by", &self.refused, self.refused_total),
            ("behind", &self.behind, self.behind_total),
            ("silent", &self.silent, self.silent_total),
            ("unknown", &self.unknown, self.unknown_total),
        ] {
            if total > 0 {
                let _ = writeln!(text, "{what} {total}:");
            }
            for proxy in list {
                describe(&mut text, proxy);
            }
            let hidden = usize::try_from(total).map_or(0, |total| total.saturating_sub(list.len()));
            if hidden > 0 {
                let _ = writeln!(text, "  and {hidden} more");
            }
        }
        text.push_str(&replicas::odd(&self.replicas));
        if !self.problems.is_empty() {
            text.push_str(&problems::text(&self.problems));
        }
        if !self.fleet.is_empty() {
            text.push_str("for every host:\n");
            text.push_str(&problems::text(&self.fleet));
        }
        if let Some(pin) = &self.pin {
            text.push_str(&pin::text(pin));
        }
        text
    }
}

fn describe(text: &mut String, proxy: &Proxy) {
    let since = match (proxy.silent_seconds, proxy.behind_seconds) {
        (Some(seconds), _) => format!(": silent for {seconds} s"),
        (None, Some(seconds)) => format!(": has {} for {seconds:.1} s", acked(&proxy.acked)),
        (None, None) => String::new(),
    };
    let diverged = if proxy.diverged { ": DIVERGED" } else { "" };
    let _ = writeln!(text, "  {}{diverged}{since}", proxy.name());
    for refused in &proxy.refused {
        let _ = writeln!(text, "    {}", refused.line());
    }
}

fn acked(version: &str) -> &str {
    if version.is_empty() { "nothing yet" } else { version }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(node: &str) -> inspect::ObjectProxy {
        inspect::ObjectProxy { id: format!("edge-{node}-00"), node: node.to_owned(), ..Default::default() }
    }

    fn status() -> inspect::StatusResponse {
        inspect::StatusResponse {
            object: "Ingress default/web".to_owned(),
            resource_version: "812".to_owned(),
            version: "1f3a92c04d7e".to_owned(),
            state: "programmed".to_owned(),
            total: 48,
            programmed: 48,
            settled: true,
            ..Default::default()
        }
    }

    #[test]
    fn what_concerns_every_host_comes_after_what_is_the_object_s_own() {
        let problem = |object: &str, reason: &str| inspect::Problem {
            object: object.to_owned(),
            severity: "warning".to_owned(),
            reason: reason.to_owned(),
            ..Default::default()
        };
        let status = inspect::StatusResponse {
            problems: vec![problem("Ingress default/web", "odd")],
            fleet: vec![problem("IngressClass nginx", "was deleted")],
            ..status()
        };
        let text = View::of(status, None).text();
        let expected = "warning: Ingress default/web\n  odd\nfor every host:\nwarning: IngressClass nginx\n  was deleted\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn the_line_says_on_how_many_of_how_many() {
        assert_eq!(
            View::of(status(), None).text(),
            "Ingress default/web: programmed on 48 of 48 proxies (version 1f3a92c04d7e, resource version 812)\n"
        );
        let nobody =
            inspect::StatusResponse { total: 0, programmed: 0, state: "unknown".to_owned(), ..status() };
        assert_eq!(View::of(nobody, None).line(), "Ingress default/web: unknown: no proxy was heard from");
        assert_eq!(
            View::of(status(), Some("900")).line(),
            "Ingress default/web: resource version 900 is not here yet, the newest is 812"
        );
    }

    #[test]
    fn one_that_is_not_served_any_more_is_not_called_deleted() {
        let left = |object: &str| inspect::StatusResponse {
            object: object.to_owned(),
            state: NOT_SERVED.to_owned(),
            total: 1,
            programmed: 1,
            ..Default::default()
        };
        let line = |object| View::of(left(object), None).line();
        assert_eq!(
            line("Ingress default/web"),
            "Ingress default/web: gone from 1 of 1 proxies: NOT SERVED any more, it exists and its class or namespace is not served here"
        );
        assert!(line("Secret default/cert").ends_with("any more, nothing that is served refers to it"));
    }

    #[test]
    fn an_unknown_state_says_why_it_is_unknown() {
        let unknown = || inspect::StatusResponse {
            state: "unknown".to_owned(),
            programmed: 40,
            behind: vec![proxy("node-1")],
            behind_total: 5,
            ..status()
        };
        let replica = |unreachable: &str| inspect::Replica {
            unreachable: unreachable.to_owned(),
            address: "10.0.0.1:15010".to_owned(),
            ..Default::default()
        };
        let replicas = vec![replica(""), replica("timed out"), replica("")];
        let unsettled = || inspect::StatusResponse { settled: false, ..unknown() };
        for (status, end) in [
            (
                inspect::StatusResponse { replicas, ..unsettled() },
                ": unknown, 1 of 3 control planes do not answer",
            ),
            (inspect::StatusResponse { replicas: vec![replica("")], ..unknown() }, ": unknown"),
            (unsettled(), ": unknown, proxies may still reconnect after the start of the control plane"),
            (unknown(), ": unknown"),
        ] {
            let view = View::of(status, None);
            assert!(view.line().ends_with(end), "{}", view.line());
            assert!(
                view.text().contains("behind 5:\n  node-1 (edge-node-1-00)\n  and 4 more\n"),
                "{}",
                view.text()
            );
        }
    }

    #[test]
    fn each_state_says_what_is_served() {
        let of = |state: &str| inspect::StatusResponse { state: state.to_owned(), programmed: 0, ..status() };
        let version = "(version 1f3a92c04d7e, resource version 812)";
        for (status, expected) in [
            (of("programmed"), format!("programmed on 0 of 48 proxies {version}")),
            (
                of("rejected"),
                format!(
                    "programmed on 0 of 48 proxies {version}: REJECTED; nothing of it is served, as no version of it was good"
                ),
            ),
            (
                inspect::StatusResponse { serves_earlier: true, ..of("rejected") },
                format!("programmed on 0 of 48 proxies {version}: REJECTED; its last good version is served"),
            ),
            (of("held-back"), format!("programmed on 0 of 48 proxies {version}: held back by a pin")),
            (of("behind"), format!("programmed on 0 of 48 proxies {version}: behind")),
            (
                inspect::StatusResponse { deleted: true, ..of("deleted") },
                format!("gone from 0 of 48 proxies {version}"),
            ),
            (
                inspect::StatusResponse { resource_version: String::new(), ..of("programmed") },
                "programmed on 0 of 48 proxies (version 1f3a92c04d7e)".to_owned(),
            ),
        ] {
            assert_eq!(View::of(status, None).line(), format!("Ingress default/web: {expected}"));
        }
    }

    #[test]
    fn who_is_behind_is_named_with_what_it_has_and_for_how_long() {
        let behind = Some(prost_types::Duration { seconds: 41, nanos: 300_000_000 });
        let old = inspect::ObjectProxy { acked: "0123456789ab".to_owned(), behind, ..proxy("node-1") };
        let new = inspect::ObjectProxy { behind, ..proxy("node-2") };
        let astray = inspect::ObjectProxy { diverged: true, ..proxy("") };
        let status = inspect::StatusResponse {
            state: "behind".to_owned(),
            behind: vec![old, new, astray],
            behind_total: 3,
            ..status()
        };
        let expected = "behind 3:\n  node-1 (edge-node-1-00): has 0123456789ab for 41.3 s\n  \
                        node-2 (edge-node-2-00): has nothing yet for 41.3 s\n  edge--00: DIVERGED\n";
        let text = View::of(status, None).text();
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn each_that_does_not_serve_it_is_named_with_the_reason() {
        let refused = inspect::Refused {
            kind: "route".to_owned(),
            key: "ingress/default/web/a.test".to_owned(),
            code: "invalid".to_owned(),
            reason: "bad\u{1b}[2J pattern".to_owned(),
            serving_last_good: true,
            ..Default::default()
        };
        let silent = Some(prost_types::Duration { seconds: 41, nanos: 0 });
        let status = inspect::StatusResponse {
            state: "refused".to_owned(),
            programmed: 45,
            refused: vec![inspect::ObjectProxy { refused: vec![refused], ..proxy("node-17") }],
            refused_total: 1,
            silent: vec![inspect::ObjectProxy { silent, ..proxy("node-9") }],
            silent_total: 2,
            ..status()
        };
        let text = View::of(status, None).text();
        for part in [
            "programmed on 45 of 48 proxies",
            "refused by 1:\n  node-17 (edge-node-17-00)\n    route ingress/default/web/a.test: bad\\u{1b}[2J pattern (invalid); \
             serves the previous version\n",
            "silent 2:\n  node-9 (edge-node-9-00): silent for 41 s\n  and 1 more\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn json_has_the_names_of_the_contract() {
        let json = serde_json::to_value(View::of(status(), None)).unwrap();
        for name in ["object", "version", "total", "programmed", "behind", "refused"] {
            assert!(!json[name].is_null(), "{name}");
        }
        assert_eq!((&json["state"], &json["awaited"]), (&"programmed".into(), &serde_json::Value::Null));
        let json = serde_json::to_value(View::of(status(), Some("900"))).unwrap();
        assert_eq!(
            (&json["state"], &json["awaited"]),
            (&"unseen".into(), &"900".into()),
            "it is no word of 812"
        );
    }
}
