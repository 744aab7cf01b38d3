//! Generates `docs/compatibility.md` from the rows of annotations and ConfigMap keys; the test fails if the file is not
//! up to date.

use std::fmt::Write as _;

use test_kit::generated;

use crate::annotations::row::{Bad, Empty, Reach, Row, Status};
use crate::annotations::{PREFIX, table};
use crate::compile::settings::table as keys;

const HEAD: &str = "\
# Compatibility with ingress-nginx

Generated from the control plane's tables: `UPDATE_DOCS=1 cargo test -p firth-control-plane compatibility_page` writes it.

What happens with an annotation that is not honoured depends on the harm of ignoring it. *Unnoticed*: no client, no backend and no
attacker can tell the difference. *Differs*: somebody can, and the table says how; but nobody gets around an access rule, nothing goes
to the wrong place, and nothing is sent in plaintext that should be encrypted. *503*: whatever depends on it answers 503 until it is
honoured. `firth problems` lists each case on its object.

Scope: *location* means the paths of the Ingress, *host* all paths of its hosts, *backend* the Service ports that it refers to.
A bad value: *rejects* the Ingress (its last good version stays), *denies* (503), *drops the group*, or *falls back* to the default.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    // The number of supported annotations is left out: every change would touch that line.
    let _ = write!(page, "\n## Annotations\n\nAll begin with `{PREFIX}`.\n\n");
    page.push_str("| annotation | becomes | scope | default | bad value | risk | what it does |\n|---|---|---|---|---|---|---|\n");
    for row in table::ROWS.iter().filter(|row| row.value.status() != Status::Dead) {
        let alias = row.alias.map(|alias| format!(", formerly `{alias}`")).unwrap_or_default();
        let canary = if row.on_canary && !row.name.starts_with("canary") { "; read on canaries" } else { "" };
        let _ = writeln!(
            page,
            "| `{}`{alias} | {}{canary} | {} | {} | {} | {} | {} |",
            row.name,
            becomes(row),
            row.scope.as_str(),
            code(row.default),
            bad(row),
            row.risk.as_str(),
            row.doc.replace('|', "\\|")
        );
    }
    page.push_str("\nReported, but without effect in the newest ingress-nginx, too: ");
    let dead = table::ROWS.iter().filter(|row| row.value.status() == Status::Dead);
    let families = table::FAMILIES.iter().map(|family| format!("`{family}*`"));
    let names: Vec<_> = dead.map(|row| code(row.name)).chain(families).collect();
    let _ = writeln!(page, "{}.", names.join(", "));
    page.push_str(
        "\n## Keys of the ConfigMap\n\nA key that sets the default of an annotation takes the same values. The defaults are ingress-nginx', but for \
         `client-header-timeout`\n(60 there, [003](adr/003-budgets.md)), `upstream-keepalive-connections` (320 there, \
         [024](adr/024-who-cannot-be-reached.md)) and `ssl-ciphers` (there with the two\nsuites `DHE-RSA-*`, which are not \
         known here). Versions of TLS before 1.2, and suites without forward secrecy or with CBC, are never used:\nwhere \
         `ssl-protocols` or `ssl-ciphers` name them, that is a problem of the ConfigMap.\n\n",
    );
    page.push_str("| key | becomes | default |\n|---|---|---|\n");
    for (key, status) in &keys::ROWS {
        let (becomes, default) = match status {
            keys::Status::Default(row) if row.name == *key => (becomes(row), row.default),
            keys::Status::Default(row) => (format!("{}, as `{}`", becomes(row), row.name), row.default),
            keys::Status::Allows(default) => ("**honoured**".into(), *default),
            keys::Status::OfIndex => {
                ("**honoured**".into(), if *key == keys::STRICT_PATHS { "true" } else { "false" })
            }
            keys::Status::Unsupported => ("not honoured yet".into(), ""),
            keys::Status::Snippet => {
                let becomes = match *key {
                    "http-snippet" => OUTER,
                    "global-auth-snippet" => ASKED,
                    "location-snippet" => READ,
                    "server-snippet" => LISTED,
                    _ => RAW,
                };
                (becomes.into(), "")
            }
            keys::Status::AllowedHeaders => ("**honoured**".into(), ""),
            keys::Status::TicketKey => ("**honoured**".into(), ""),
            keys::Status::Nginx => ("tunes nginx itself, has no effect here".into(), ""),
            keys::Status::Dead => ("no effect, as in ingress-nginx".into(), ""),
        };
        let _ = writeln!(page, "| `{key}` | {becomes} | {} |", code(default));
    }
    page
}

const RAW: &str = "raw configuration is never used; 503 if it could restrict access or redirect elsewhere";
const READ: &str = "fixed answers, address lists, limits, header directives and `proxy_cookie_flags` are **honoured**; the rest is never used: 503 if it could restrict access or redirect elsewhere";
const LISTED: &str = "fixed answers, address lists, limits, header directives and `real_ip_header` are **honoured**; the rest is never used: 503 if it could restrict access or redirect elsewhere";
const ASKED: &str = "`proxy_set_header` and fixed answers of 2xx, 401 or 403 are **honoured**; the rest is never used: 503 if it could restrict access or redirect elsewhere";
const OUTER: &str = "address lists, limits, header directives for answers, `proxy_hide_header` and `real_ip_header` are **honoured**; the rest is never used: 503 if it could restrict access or redirect elsewhere";
/// What becomes of a snippet, by where it stands in nginx' configuration.
fn snippet(name: &str) -> &'static str {
    match name {
        "stream-snippet" => "differs: raw nginx configuration is never used",
        "auth-snippet" => {
            "fixed answers that refuse are **honoured**; header directives and answers that let requests in with `allow-snippet-annotations`; the rest is never used: 503 if it could restrict access or redirect elsewhere"
        }
        _ => {
            "fixed answers, address lists and limits are **honoured**; header directives, `proxy_cookie_flags`, rewrites, fixed error pages, `sub_filter`, `real_ip_header`, `client_body_timeout` and names for TLS to backends with `allow-snippet-annotations`; the rest is never used: 503 if it could restrict access or redirect elsewhere"
        }
    }
}

fn becomes(row: &Row) -> String {
    match row.value.status() {
        Status::Honoured => "**honoured**".into(),
        Status::Unnoticed(why) => format!("unnoticed: {why}"),
        Status::Differs("") => format!("part of {}", row.needs.map_or_else(|| "others".into(), code)),
        Status::Differs(without) => format!("differs: {without}"),
        Status::Denies(Reach::Paths) => "503 until it is honoured".into(),
        Status::Denies(Reach::Hosts) => "503 for the host until it is honoured".into(),
        Status::Snippet => snippet(row.name).into(),
        Status::Dead => "no effect, as in ingress-nginx".into(),
    }
}

fn bad(row: &Row) -> &'static str {
    match (row.bad, row.empty) {
        _ if row.value.samples().1.is_empty() => "",
        (Bad::Reject, Empty::DropsGroup) => "rejects, an empty one drops the group",
        (Bad::Reject, _) => "rejects",
        (Bad::Deny(_), Empty::Bad) => "denies, an empty one too",
        (Bad::Deny(_), _) => "denies",
        (Bad::DropGroup, _) => "drops the group",
        (Bad::Fallback, _) => "falls back",
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

#[test]
fn is_up_to_date() {
    generated::is_up_to_date(
        "compatibility.md",
        &page(),
        "cargo test -p firth-control-plane compatibility_page",
    );
}
