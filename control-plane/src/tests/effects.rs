//! Which fields of policies each value of each annotation, and of each key of the ConfigMap, sets to what: compared with
//! `effects.txt`, a line for each sample of the rows' grammars.
//!
//! Other tests say that a value takes effect, or what a few values mean. Only this one notices a row that sets the field of
//! another one, the opposite, or a wrong number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::{env, fs};

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value as Json;
use shared::name::ObjectName;
use shared::policy::AffinityMode;
use shared::proto::DESCRIPTORS;

use crate::annotations::row::Status;
use crate::annotations::{self, PREFIX, Parsed, companions, table};
use crate::compile::settings::{self, Compiled, table as keys};
use crate::objects::ConfigMap;
use crate::reference::Reference;

const HEAD: &str = "\
# What each value of an annotation sets, beside what it needs, and each value of a key of the ConfigMap.
# Written by UPDATE_EFFECTS=1 cargo test -p firth-control-plane effects, and compared by the same without UPDATE_EFFECTS.
";

const ADVICE: &str = "\
Values do not set what effects.txt says, or a row is new. If that is meant, UPDATE_EFFECTS=1 cargo test -p firth-control-plane effects
writes the file: read its lines before you commit them.";

/// Values that no sample stands for: those of a row's grammar are what it takes, and these mean something else to this row.
const MORE: [(&str, &str); 3] =
    [("backend-protocol", "GRPCS"), ("permanent-redirect-code", "308"), ("temporal-redirect-code", "307")];

/// Policies, and the parts of `effects.txt` with their fields.
const POLICIES: [(&str, &[&str]); 3] = [
    ("LocationPolicy", &["location", "defaults"]),
    ("HostPolicy", &["host"]),
    ("BackendPolicy", &["backend", "backends"]),
];

/// Fields that no sample of an annotation or a key sets, and what sets them instead. A new field has a row with samples;
/// it is listed here only if it cannot have one, and then other tests say what sets it.
const OTHERWISE: [(&str, &[&str]); 4] = [
    (
        "directives of snippets, which are no words of a grammar: index/tests/snippets.rs, annotations/snippets",
        &[
            "HostPolicy.shortcuts",
            "LocationPolicy.chunked_transfer_encoding",
            "LocationPolicy.error_answers",
            "LocationPolicy.fleet_header_changes",
            "LocationPolicy.global_auth_answers",
            "LocationPolicy.global_auth_proxy_set_headers",
            "LocationPolicy.hide_headers_beside",
            "LocationPolicy.host_error_answers",
            "LocationPolicy.host_header_changes",
            "LocationPolicy.host_intercept_errors",
            "LocationPolicy.host_real_ip",
            "LocationPolicy.host_shortcuts",
            "LocationPolicy.host_variables",
            "LocationPolicy.intercept_errors",
            "LocationPolicy.internal",
            "LocationPolicy.limit_in_progress",
            "LocationPolicy.limit_requests",
            "LocationPolicy.lists_go_on",
            "LocationPolicy.outer_allowlist",
            "LocationPolicy.outer_denylist",
            "LocationPolicy.outer_lists_follow",
            "LocationPolicy.own_real_ip",
            "LocationPolicy.proxy_cookie_flags",
            "LocationPolicy.real_ip",
            "LocationPolicy.request_headers",
            "LocationPolicy.shortcuts",
            "LocationPolicy.substitutions",
            "LocationPolicy.told_headers",
            "LocationPolicy.variables",
        ],
    ),
    (
        "the content of a ConfigMap that is referred to, which a sample only names: index/tests/headers.rs",
        &[
            "LocationPolicy.add_headers",
            "LocationPolicy.custom_headers",
            "LocationPolicy.fastcgi_params",
            "LocationPolicy.proxy_set_headers",
        ],
    ),
    (
        "flags of the control plane: index/settings.rs, app/flags.rs",
        &["LocationPolicy.health_check_path", "LocationPolicy.request_metrics"],
    ),
    (
        "what the Ingresses of a host say together: compile/host.rs, index/tests/restrictions.rs",
        &["HostPolicy.backend_tls", "HostPolicy.regex", "LocationPolicy.root_issues_none"],
    ),
];

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap());

/// What is set, by the path of its field.
type Fields = BTreeMap<String, String>;

/// The fields of a policy that are set, as JSON.
fn add_policy(to: &mut Fields, part: &str, name: &str, policy: &impl Message) {
    let descriptor = POOL.get_message_by_name(&format!("firth.config.v1.{name}")).unwrap();
    let message = DynamicMessage::decode(descriptor, &*policy.encode_to_vec()).unwrap();
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options).unwrap();
    let Json::Object(fields) = json else { panic!("{name}: {json}") };
    to.extend(fields.into_iter().map(|(field, value)| (format!("{part}.{field}"), value.to_string())));
}

fn add_references<'a>(to: &mut Fields, references: impl Iterator<Item = &'a Reference>) {
    to.extend(references.map(|it| (format!("refers to {}", it.object()), format!("for {:?}", it.what))));
}

fn of_ingress(parsed: &Parsed) -> Fields {
    let mut fields = Fields::new();
    let serving = &parsed.serving;
    add_policy(&mut fields, "location", "LocationPolicy", &serving.location);
    add_policy(&mut fields, "host", "HostPolicy", &serving.host);
    add_policy(&mut fields, "backend", "BackendPolicy", &parsed.backend);
    add_references(&mut fields, parsed.refs.keys());
    let mode = parsed.affinity_mode.map(|it| AffinityMode::try_from(it).unwrap().as_str_name());
    let texts = [
        ("affinity mode", mode.unwrap_or_default()),
        ("name of TLS", &serving.tls_name),
        ("host of requests", &serving.vhost),
        ("paths", serving.denied.as_ref().map_or("", |_| "denied")),
        ("hosts", serving.hosts_denied.as_ref().map_or("", |_| "denied")),
        ("needs", if parsed.snippets.is_empty() { "" } else { "snippets" }),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    fields.extend(texts.map(|(what, text)| (what.to_owned(), text.to_owned())));
    if let Some(of_hosts) = &serving.of_hosts {
        fields.insert("of hosts".into(), format!("{of_hosts:?}"));
    }
    fields
}

fn of_fleet(compiled: &Compiled) -> Fields {
    let mut fields = Fields::new();
    add_policy(&mut fields, "defaults", "LocationPolicy", &compiled.settings.defaults);
    add_policy(&mut fields, "backends", "BackendPolicy", &compiled.settings.backend_defaults);
    add_references(&mut fields, compiled.refs.keys());
    fields.extend(compiled.settings.guards.iter().map(|guard| ("guards".into(), format!("{guard:?}"))));
    fields
}

/// What is set after and was not before, and the reverse.
fn difference(before: &Fields, after: &Fields) -> String {
    let set = after.iter().filter(|(field, value)| before.get(*field) != Some(*value));
    let lost =
        before.keys().filter(|field| !after.contains_key(*field)).map(|field| format!("{field} unset"));
    let all: Vec<_> = set.map(|(field, value)| format!("{field} {value}")).chain(lost).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

fn of_annotations(texts: &[(&'static str, String)]) -> Fields {
    let texts = texts.iter().map(|(name, text)| (format!("{PREFIX}{name}"), text.clone())).collect();
    of_ingress(&annotations::read(&ObjectName::new("default", "web"), &texts))
}

fn of_keys(texts: &[(&str, &str)]) -> Fields {
    let data = texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    of_fleet(&settings::compile(Some(&ConfigMap { data, ..ConfigMap::default() }), None))
}

fn page() -> String {
    let mut page = format!("{HEAD}\n# annotations\n");
    for row in table::ROWS.iter().filter(|row| row.value.status() != Status::Dead) {
        let more = MORE.iter().filter(|(name, _)| *name == row.name).map(|(_, text)| text);
        for text in row.value.samples().0.iter().chain(more) {
            let texts = companions(row, text);
            let set = difference(&of_annotations(&texts[1..]), &of_annotations(&texts));
            page += &format!("{} = {text:?}: {set}\n", row.name);
        }
    }
    page += "\n# keys of the ConfigMap\n";
    let nothing = of_keys(&[]);
    for (key, row) in keys::ROWS.iter().filter_map(|(key, status)| Some((key, status.row()?))) {
        for text in row.value.samples().0 {
            page += &format!("{key} = {text:?}: {}\n", difference(&nothing, &of_keys(&[(key, text)])));
        }
    }
    page
}

#[test]
fn each_value_has_the_effects_that_are_written_down() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/effects.txt");
    let now = page();
    if env::var_os("UPDATE_EFFECTS").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap();
    let gone = written.lines().filter(|line| !now.lines().any(|it| it == *line));
    let new = now.lines().filter(|line| !written.lines().any(|it| it == *line));
    let lines: String =
        gone.map(|line| format!("- {line}\n")).chain(new.map(|line| format!("+ {line}\n"))).collect();
    assert!(written == now, "{ADVICE}\n{lines}");
}

/// A field that nothing sets, or that nobody has looked at, is not forgotten.
#[test]
fn each_field_of_a_policy_has_a_sample_or_is_set_otherwise() {
    let page = page();
    let mut otherwise: BTreeSet<&str> = OTHERWISE.iter().flat_map(|(_, fields)| *fields).copied().collect();
    for (policy, parts) in POLICIES {
        for field in POOL.get_message_by_name(&format!("firth.config.v1.{policy}")).unwrap().fields() {
            let name = format!("{policy}.{}", field.name());
            let has_sample = parts.iter().any(|part| page.contains(&format!(" {part}.{} ", field.name())));
            match (has_sample, otherwise.remove(&*name)) {
                (true, true) => panic!("{name} has a sample in effects.txt: it is set otherwise no longer"),
                (false, false) => {
                    panic!("{name} has no line in effects.txt, and OTHERWISE does not say what sets it")
                }
                _ => {}
            }
        }
    }
    assert_eq!(otherwise, BTreeSet::new(), "no such fields");
}
