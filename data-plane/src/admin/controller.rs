//! The metrics that the ingress-nginx controller exports about its configuration, computed from what this proxy
//! serves. A scrape of the proxies alone is enough for the ingress-nginx dashboards.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use shared::resource::CATCH_ALL;
use shared::telemetry::VERSION;
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::scrape::{Sample, Scrape};
use crate::metrics::{PREFIX, head, label};
use crate::subscribe::View;
use crate::table::{HostEntry, HostTable};

/// Adds all of these metrics.
pub(super) fn add(scrape: Scrape, table: &Arc<HostTable>, view: &View, labels: &Constant) -> Scrape {
    let plain = plain(table, view, labels);
    let scrape = scrape.with_text(move |out| out.push_str(&plain));
    orphans(certificates(scrape, table, labels), table, labels)
}

/// Labels of all series, formatted, and the class that is among them.
#[derive(Clone)]
pub(super) struct Constant {
    pub(super) text: Arc<str>,
    pub(super) class: Arc<str>,
}

/// The build, and how the configuration was applied.
fn plain(table: &HostTable, view: &View, labels: &Constant) -> String {
    let mut build = labels.text.to_string();
    label(&mut build, "build", VERSION);
    label(&mut build, "release", VERSION);
    label(&mut build, "repository", env!("CARGO_PKG_REPOSITORY"));
    let mut out = String::new();
    let mut one = |name: &str, kind, help, labels: &str, value: f64| {
        head(&mut out, name, kind, help);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{PREFIX}{name}{{{labels}}} {value}");
    };
    one("build_info", "gauge", "This build", &build, 1.0);
    // 48 bits of the version, which an `f64` represents exactly.
    let hash = view.config.root.0.iter().take(6).fold(0.0, |hash, byte| hash * 256.0 + f64::from(*byte));
    let mut plain = |name, kind, help, value| one(name, kind, help, &labels.text, value);
    plain("config_hash", "gauge", "Version of the configuration, as a number", hash);
    let is_whole = f64::from(view.complete && view.refused == 0);
    plain("config_last_reload_successful", "gauge", "Whether all of the configuration is served", is_whole);
    let at = view.applied.map_or(0.0, |at| at as f64);
    plain("config_last_reload_successful_timestamp_seconds", "gauge", "When it was put in place", at);
    plain("success", "counter", "Configurations that were put in place", table.generation() as f64);
    plain("errors", "counter", "Configurations that could not be", 0.0);
    out
}

/// The hosts, by name. The catch-all host is among them even if nobody declares it.
fn hosts(table: &HostTable) -> Vec<Arc<HostEntry>> {
    let mut hosts: Vec<_> = table.iter().cloned().collect();
    if !hosts.iter().any(|host| host.name() == CATCH_ALL) {
        hosts.push(Arc::new(HostEntry::empty(CATCH_ALL)));
    }
    hosts.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    hosts
}

/// Expiry and identity of the certificates that hosts' clients are shown, and of the default one, whose host is `_` as
/// in ingress-nginx. Nothing about their keys.
fn certificates(scrape: Scrape, table: &Arc<HostTable>, labels: &Constant) -> Scrape {
    let ends = ("ssl_expire_time_seconds", "gauge", "When the certificate of a host ends, since 1970");
    let infos = ("ssl_certificate_info", "gauge", "The certificate of a host");
    [(ends, end as OfLeaf), (infos, info)].into_iter().fold(scrape, |scrape, (family, sample)| {
        let (listed, table, labels) = (Arc::clone(table), Arc::clone(table), labels.clone());
        let samples = move |host: Arc<HostEntry>| certificate(&table, &host, &labels, sample);
        scrape.with_samples(family, move || hosts(&listed), samples)
    })
}

/// Makes a sample of a certificate with these labels.
type OfLeaf = fn(String, &X509Certificate<'_>) -> Sample;

/// The sample of a host's certificate, if it has one.
fn certificate(table: &HostTable, host: &HostEntry, labels: &Constant, sample: OfLeaf) -> Option<Sample> {
    let (secret, certificate) = table.shown(host)?;
    let certificate = certificate.shown();
    let (_, leaf) = X509Certificate::from_der(certificate.cert.first()?).ok()?;
    let (namespace, name) = secret.split_once('/').unwrap_or_default();
    let mut text = labels.text.to_string();
    label(&mut text, "class", &labels.class);
    label(&mut text, "host", host.name());
    label(&mut text, "identifier", &identifier(&leaf));
    label(&mut text, "namespace", namespace);
    label(&mut text, "secret_name", name);
    Some(sample(text, &leaf))
}

fn end(text: String, leaf: &X509Certificate<'_>) -> Sample {
    (text, leaf.validity().not_after.timestamp() as f64)
}

/// Adds labels about its issuer and its key.
fn info(mut text: String, leaf: &X509Certificate<'_>) -> Sample {
    let issuer = leaf.issuer();
    let organization = issuer.iter_organization().next().and_then(|it| it.as_str().ok());
    let common_name = issuer.iter_common_name().next().and_then(|it| it.as_str().ok());
    label(&mut text, "issuer_common_name", common_name.unwrap_or_default());
    label(&mut text, "issuer_organization", organization.unwrap_or_default());
    label(&mut text, "public_key_algorithm", algorithm(leaf));
    label(&mut text, "serial_number", &leaf.tbs_certificate.serial.to_string());
    (text, 1.0)
}

/// As in ingress-nginx: the `serialNumber` in the issuer's name, which few have, and the certificate's own.
fn identifier(leaf: &X509Certificate<'_>) -> String {
    let authority = leaf.issuer().iter_by_oid(&OID_X509_SERIALNUMBER).last();
    let authority = authority.and_then(|it| it.as_str().ok()).unwrap_or_default();
    format!("{authority}-{}", leaf.tbs_certificate.serial)
}

fn algorithm(leaf: &X509Certificate<'_>) -> &'static str {
    match leaf.public_key().algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => "RSA",
        "1.2.840.10045.2.1" => "ECDSA",
        "1.3.101.112" => "Ed25519",
        _ => "Unknown",
    }
}

/// What an Ingress lacks.
#[derive(Clone, Copy, Default)]
struct Lacks {
    service: bool,
    endpoints: bool,
}

/// Ingresses with a Service that has no endpoints or does not exist: a missing one is not also reported as having no
/// endpoints.
fn orphans(scrape: Scrape, table: &Arc<HostTable>, labels: &Constant) -> Scrape {
    let (table, constant) = (Arc::clone(table), Arc::clone(&labels.text));
    let sample = move |owner: &str, kind: &str, lacks: bool| {
        let (namespace, ingress) = owner.split_once('/').unwrap_or_default();
        let mut text = constant.to_string();
        label(&mut text, "ingress", ingress);
        label(&mut text, "namespace", namespace);
        label(&mut text, "type", kind);
        (text, f64::from(lacks))
    };
    let help = "Whether a Service of an Ingress does not exist, or has no endpoints";
    scrape.with_samples(
        ("orphan_ingress", "gauge", help),
        move || lacking(&table).into_iter().collect(),
        move |(owner, lacks)| {
            [sample(&owner, "no-endpoint", lacks.endpoints), sample(&owner, "no-service", lacks.service)]
        },
    )
}

/// What each Ingress lacks.
fn lacking(table: &HostTable) -> BTreeMap<Box<str>, Lacks> {
    let mut orphans: BTreeMap<Box<str>, Lacks> = BTreeMap::new();
    for host in table.iter() {
        for declared in host.paths() {
            let entry = &declared.entry;
            if !entry.names_backend() {
                continue;
            }
            let (service, endpoints) = match entry.upstream() {
                Some(upstream) => {
                    let service =
                        upstream.cell.configured().is_some_and(|configured| configured.without_service);
                    (service, !service && upstream.cell.endpoints().list.is_empty())
                }
                None => (false, true),
            };
            let lacks = orphans.entry(entry.owner().into()).or_default();
            lacks.service |= service;
            lacks.endpoints |= endpoints;
        }
    }
    orphans
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use shared::admin::Body;
    use shared::resource::{Backend, Resource, Settings};

    use super::*;
    use crate::table::Writer;
    use crate::table::world::{backend, certificate as certificate_for, entry, host, route, slice};

    #[test]
    fn certificates_are_identified_as_in_the_original() {
        let certificate = |of_issuer: Option<&str>| {
            let mut params = CertificateParams::new(vec!["a.test".into()]).unwrap();
            params.serial_number = Some(vec![100].into());
            if let Some(number) = of_issuer {
                params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 5]), number);
            }
            params.self_signed(&KeyPair::generate().unwrap()).unwrap()
        };
        for (of_issuer, expected) in [(Some("abcd1234"), "abcd1234-100"), (None, "-100")] {
            let made = certificate(of_issuer);
            let (_, leaf) = X509Certificate::from_der(made.der()).unwrap();
            assert_eq!(identifier(&leaf), expected);
        }
    }

    /// As in ingress-nginx, whose chart says to watch host `_` where there is a default certificate.
    #[test]
    fn a_host_is_listed_with_what_its_clients_are_shown() {
        let mut writer = Writer::new();
        let named = Settings { default_certificate: "ns/default".into(), ..Settings::default() };
        writer.replace_config(vec![
            host("a.test", Some(&["ns/a"])),
            host("bare.test", Some(&[])),
            host("else.test", Some(&["ns/a"])),
            host("gone.test", Some(&["ns/gone"])),
            host("plain.test", None),
            entry("default", Resource::Settings(named)),
        ]);
        let listed = |writer: &Writer| -> Vec<String> {
            let labels = Constant { text: "x=\"y\"".into(), class: "c".into() };
            let scrape = certificates(Scrape::default(), &writer.tables().current(), &labels);
            let page = Body::Pieces(Box::new(scrape)).into_bytes();
            let page = str::from_utf8(&page).unwrap();
            let of = |line: &str, name: &str| {
                line.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap().to_owned()
            };
            let family = |name: &str| -> Vec<String> {
                let samples = page.lines().filter(|line| line.starts_with(&format!("{PREFIX}{name}")));
                samples.map(|line| format!("{} {}", of(line, "host"), of(line, "secret_name"))).collect()
            };
            let ends = family("ssl_expire_time_seconds");
            assert_eq!(ends, family("ssl_certificate_info"));
            ends
        };
        let given = |key: &str, name: &str| entry(key, Resource::Certificate(certificate_for(&[name])));
        writer.apply_live(vec![given("ns/a", "a.test")], &[]);
        assert_eq!(listed(&writer), ["a.test a"]);
        writer.apply_live(vec![given("ns/default", "default.test")], &[]);
        assert_eq!(
            listed(&writer),
            ["_ default", "a.test a", "bare.test default", "else.test default", "gone.test default"]
        );
    }

    #[test]
    fn missing_services_and_endpoints_of_an_ingress_are_listed() {
        let mut writer = Writer::new();
        let gone = Backend { without_service: true, ..Backend::default() };
        writer.replace_config(vec![
            host("a.test", None),
            route("ingress/ns/fine/a.test", &[("/fine", "ns/fine/80")]),
            route("ingress/ns/empty/a.test", &[("/empty", "ns/empty/80"), ("/too", "ns/fine/80")]),
            route("ingress/ns/gone/a.test", &[("/gone", "ns/gone/80")]),
            backend("ns/fine/80"),
            backend("ns/empty/80"),
            entry("ns/gone/80", Resource::Backend(gone)),
        ]);
        writer.apply_live(vec![slice("ns/fine-1", "ns/fine", &[1])], &[]);
        let lacking = |writer: &Writer| -> Vec<String> {
            let labels = Constant { text: "".into(), class: "".into() };
            let scrape = orphans(Scrape::default(), &writer.tables().current(), &labels);
            let page = Body::Pieces(Box::new(scrape)).into_bytes();
            let page = str::from_utf8(&page).unwrap();
            let samples = page.lines().filter(|line| line.ends_with(" 1"));
            let of = |line: &str, name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
                rest.split('"').next().unwrap().to_owned()
            };
            samples.map(|line| format!("{} {}", of(line, "ingress"), of(line, "type"))).collect()
        };
        assert_eq!(lacking(&writer), ["empty no-endpoint", "gone no-service"]);
        writer.apply_config(vec![backend("ns/gone/80")], &[]);
        assert_eq!(lacking(&writer), ["empty no-endpoint", "gone no-endpoint"]);
    }
}
