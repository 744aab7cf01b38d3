//! Load balancing: which endpoint gets a request.

use shared::policy::LoadBalance;
use shared::template::{Template, Variable};

use super::draft::Draft;
use super::row::{Bad, Effect, Empty, Risk, Row, Scope, Spec};
use super::value::{self, BOOL, Grammar, VARIABLES, one_of};
use super::{Severity, shown};

/// `load-balance`.
pub(crate) static LOAD_BALANCE: Row = Row {
    name: "load-balance",
    scope: Scope::Backend,
    value: &Spec(
        one_of!("round_robin" | "chash" | "chashsubset" | "sticky_balanced" | "sticky_persistent" | "ewma"),
        Effect::Sets(load_balance),
    ),
    bad: Bad::Reject,
    on_canary: true,
    default: "round_robin",
    doc: "How endpoints are chosen",
    harmless: true,
    ..Row::NEW
};

/// `load-balance` of the ConfigMap. A name that ingress-nginx does not know means `round_robin` there (`balancer.lua`);
/// with a name that needs further settings, such as `chash`, ingress-nginx serves no requests.
pub(crate) static LOAD_BALANCE_OF_ALL: Row = Row {
    name: "load-balance",
    scope: Scope::Backend,
    value: &Spec(
        Grammar {
            read: |name| ["round_robin", "ewma"].into_iter().find(|it| *it == name),
            good: &["round_robin", "ewma"],
            bad: &["chash", "ewma "],
            ..one_of!("round_robin" | "ewma")
        },
        Effect::Sets(load_balance),
    ),
    default: "round_robin",
    doc: "How endpoints are chosen",
    harmless: true,
    ..Row::NEW
};

/// The names for hashing and affinity mean nothing by themselves. In ingress-nginx such a Backend makes `balancer.lua`
/// stop processing all Backends after it.
fn load_balance(to: &mut Draft<'_>, name: &'static str) {
    let needed = match name {
        "chash" | "chashsubset" => Some(HASH_BY),
        // A canary has the affinity of the main Ingress.
        "sticky_balanced" | "sticky_persistent" if !to.is_on("canary") => Some("affinity"),
        _ => None,
    };
    if let Some(needed) = needed.filter(|needed| !to.is_on(needed)) {
        to.fault(Severity::Rejected, format!("expected the annotation {needed} beside {name}"));
    }
    let load_balance = if name == "ewma" { LoadBalance::Ewma } else { LoadBalance::RoundRobin };
    to.backend.load_balance = Some(load_balance.into());
}

/// `service-upstream`.
pub(crate) static SERVICE_UPSTREAM: Row = Row {
    name: "service-upstream",
    scope: Scope::Backend,
    value: &Spec(
        TRUE_OR_NOT,
        Effect::Sets(|to, it| {
            if let Err(text) = &it {
                let got = shown(text);
                to.fault(Severity::Warning, format!("expected true or false, got {got}: false is used"));
            }
            to.backend.service_upstream = Some(it == Ok(true));
        }),
    ),
    empty: Empty::Read,
    on_canary: true,
    default: "false",
    doc: "Requests go to the cluster IP of the Service, if it has one",
    harmless: true,
    ..Row::NEW
};

/// A value that is no boolean is false, whatever the ConfigMap says (ingress-nginx).
const TRUE_OR_NOT: Grammar<Result<bool, String>> = Grammar {
    words: BOOL.words,
    read: |text| Some(value::boolean(text).ok_or_else(|| text.to_owned())),
    good: BOOL.good,
    bad: &[],
};

pub(super) static ROWS: &[&Row] = &[
    &LOAD_BALANCE,
    &SERVICE_UPSTREAM,
    &Row {
        name: HASH_BY,
        scope: Scope::Backend,
        risk: Risk::High,
        value: &Spec(VARIABLES, Effect::Sets(hash_by)),
        bad: Bad::Reject,
        group: HASHING,
        on_canary: true,
        doc: "Requests with the same value go to the same endpoint (consistent hashing)",
        ..Row::NEW
    },
    &Row {
        name: "upstream-hash-by-subset",
        scope: Scope::Backend,
        value: &Spec(
            BOOL,
            Effect::Sets(|to, it| {
                needs_hash_by(to);
                to.backend.hash_subset = Some(it);
            }),
        ),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        group: HASHING,
        on_canary: true,
        default: "false",
        doc: "With `upstream-hash-by`: requests with the same value go to any endpoint of a subset",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "upstream-hash-by-subset-size",
        scope: Scope::Backend,
        value: &Spec(
            SIZE,
            Effect::Sets(|to, it| {
                needs_hash_by(to);
                to.backend.hash_subset_size = Some(it);
            }),
        ),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        group: HASHING,
        on_canary: true,
        default: "3",
        doc: "Endpoints per subset; 0 means 3",
        harmless: true,
        ..Row::NEW
    },
];

const HASH_BY: &str = "upstream-hash-by";

/// The group of it and its subsets.
const HASHING: &str = "hashing";

/// ingress-nginx fails on a negative group size, and stops processing the Backends after it (`balancer.lua`).
const SIZE: Grammar<u32> = Grammar {
    words: "a whole number, not a negative one",
    read: |text| value::integer(text).filter(|it| *it >= 0).map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
    good: &["7", "+100", "0"],
    bad: &["-1", "ten", "1.5"],
};

/// Without the value of a variable that nginx has, each proxy could send all requests to one endpoint, while
/// ingress-nginx spreads them: so round robin is used. A variable that nginx does not know either is empty in both.
fn hash_by(to: &mut Draft<'_>, text: String) {
    let template = Template::parse(&text);
    let known_to_nginx = template.variables().find_map(|variable| match variable {
        Variable::Named(name) if is_known_to_nginx(name) => Some(&**name),
        _ => None,
    });
    if let Some(name) = known_to_nginx {
        return to.differs(format!("the variable ${name} is not supported: round robin is used"));
    }
    for variable in template.variables() {
        if let Variable::Named(name) = variable
            && !to.is_set(name)
        {
            let name = shown(name);
            to.fault(Severity::Warning, format!("no variable is called {name}: it is empty"));
        }
    }
    to.backend.hash_by = Some(text);
}

fn needs_hash_by(to: &mut Draft<'_>) {
    if !to.is_on(HASH_BY) {
        to.fault(Severity::Warning, format!("has no effect without the annotation {HASH_BY}"));
    }
}

/// Variables of nginx, and of the modules that ingress-nginx is built with, that have no value here.
pub(super) fn is_known_to_nginx(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "body_bytes_sent",
        "bytes_sent",
        "connection_time",
        "connections_active",
        "connections_reading",
        "connections_waiting",
        "connections_writing",
        "document_root",
        "limit_rate",
        "nginx_version",
        "pid",
        "pipe",
        "realpath_root",
        "request_body",
        "request_completion",
        "request_filename",
        "request_length",
        "request_time",
        "status",
    ];
    const FAMILIES: &[&str] = &[
        "geoip_",
        "geoip2_",
        "opentelemetry_",
        "proxy_protocol_",
        "realip_",
        "sent_",
        "ssl_",
        "tcpinfo_",
        "upstream_",
    ];
    NAMES.binary_search(&name).is_ok() || FAMILIES.iter().any(|family| name.starts_with(family))
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;
    use shared::policy::LoadBalance;

    use crate::annotations::{PREFIX, Parsed, read};
    use crate::problem::Severity::{self, Rejected, Unsupported, Warning};

    fn parsed(configured: &[(&str, &str)]) -> Parsed {
        let annotations =
            configured.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        read(&ObjectName::new("default", "web"), &annotations.collect())
    }

    fn severities(configured: &[(&str, &str)]) -> Vec<Severity> {
        parsed(configured).faults.iter().map(|fault| fault.severity).collect()
    }

    #[test]
    fn a_key_is_made_of_what_is_known() {
        for text in [
            "$request_uri",
            "${remote_addr}-x",
            "$host$uri",
            "$binary_remote_addr",
            "$cookie_a$arg_b",
            "$ssl_client_fingerprint$remote_port",
            "$hostname$request",
            "text",
        ] {
            let it = parsed(&[("upstream-hash-by", text)]);
            assert_eq!((it.backend.hash_by.as_deref(), it.faults.len()), (Some(text), 0), "{text}");
        }
    }

    #[test]
    fn an_empty_subset_takes_the_key_with_it() {
        for name in ["upstream-hash-by-subset", "upstream-hash-by-subset-size"] {
            let it = parsed(&[("upstream-hash-by", "$request_uri"), (name, "")]);
            assert_eq!((it.backend.hash_by, it.faults.len()), (None, 1), "{name}");
            assert!(parsed(&[(name, "")]).faults.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_not_known_is_told() {
        // Empty in both: all requests have the same key.
        let it = parsed(&[("upstream-hash-by", "$foo_bar")]);
        assert_eq!((it.backend.hash_by.as_deref(), it.faults.len()), (Some("$foo_bar"), 1));
        // In nginx these have values.
        for text in ["$ssl_client_raw_cert", "$request_uri$request_body", "$tcpinfo_rtt", "$request_length"] {
            let it = parsed(&[("upstream-hash-by", text)]);
            assert_eq!((it.backend.hash_by, it.faults[0].severity), (None, Unsupported), "{text}");
        }
        // A path that another Ingress turns into a regular expression has groups, too.
        assert_eq!(severities(&[("upstream-hash-by", "$1")]), []);
    }

    #[test]
    fn an_algorithm_that_needs_more_is_rejected_without() {
        let load_balance = |configured: &[(&str, &str)]| {
            let it = parsed(configured);
            assert_eq!(it.faults.len(), 0, "{configured:?}: {:?}", it.faults);
            LoadBalance::try_from(it.backend.load_balance.unwrap()).unwrap()
        };
        for name in ["ewma", "ewma "] {
            assert_eq!(load_balance(&[("load-balance", name)]), LoadBalance::Ewma);
        }
        assert_eq!(load_balance(&[("load-balance", "round_robin")]), LoadBalance::RoundRobin);
        for (name, needed, text) in [
            ("chash", "upstream-hash-by", "$uri"),
            ("chashsubset", "upstream-hash-by", "$uri"),
            ("sticky_balanced", "affinity", "cookie"),
            ("sticky_persistent", "affinity", "cookie"),
        ] {
            assert_eq!(severities(&[("load-balance", name)]), [Rejected], "{name}");
            assert_eq!(load_balance(&[("load-balance", name), (needed, text)]), LoadBalance::RoundRobin);
        }
        assert_eq!(
            load_balance(&[("load-balance", "sticky_balanced"), ("canary", "true")]),
            LoadBalance::RoundRobin
        );
        for name in ["least_conn", "random", "Ewma", "ew ma"] {
            assert_eq!(severities(&[("load-balance", name)]), [Rejected], "{name}");
        }
    }

    #[test]
    fn groups_have_a_size_that_there_can_be() {
        let size = |text| {
            let configured = [
                ("upstream-hash-by", "$uri"),
                ("upstream-hash-by-subset", "true"),
                ("upstream-hash-by-subset-size", text),
            ];
            (parsed(&configured).backend.hash_subset_size, severities(&configured))
        };
        assert_eq!(size("2"), (Some(2), vec![]));
        assert_eq!(size("0"), (Some(0), vec![]), "what counts then is the proxy's to know");
        assert_eq!(size("99999999999"), (Some(u32::MAX), vec![]));
        assert_eq!(size("-1").1, [Rejected]);
        assert_eq!(size("many").1, [Rejected]);
    }

    #[test]
    fn groups_of_nothing_are_told_and_judged() {
        assert_eq!(severities(&[("upstream-hash-by-subset", "true")]), [Warning]);
        assert_eq!(severities(&[("upstream-hash-by-subset", "perhaps")]), [Rejected]);
        assert_eq!(severities(&[("upstream-hash-by-subset-size", "x")]), [Rejected]);
    }

    #[test]
    fn names_are_found() {
        for name in ["body_bytes_sent", "status", "pid", "ssl_early_data"] {
            assert!(super::is_known_to_nginx(name), "{name}");
        }
        assert!(!super::is_known_to_nginx("foo_bar"));
    }
}
