//! Translates the flags into options of the index and the store.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use shared::clock;
use shared::name::ObjectName;
use shared::version::Lineage;

use crate::args::{Args, DEFAULT_CONFIGMAP, DEFAULT_TCP_SERVICES, DEFAULT_UDP_SERVICES};
use crate::index::{self, Index};
use crate::store::{Bounds, Journal, Published, Store};

/// Checks that valid flags do not contradict each other.
///
/// # Errors
/// If two of them exclude each other, as in ingress-nginx.
pub(super) fn fit(args: &Args) -> anyhow::Result<()> {
    if args.watch_namespace.is_some() && args.watch_namespace_selector.is_some() {
        bail!("flags --watch-namespace and --watch-namespace-selector are mutually exclusive");
    }
    Ok(())
}

/// The Secret with the generated session ticket keys of the fleet.
pub(super) fn ticket_keys(args: &Args) -> ObjectName {
    ObjectName::new(args.decisions_namespace(), args.ticket_keys_secret.as_str())
}

/// Opens a store with its history of earlier processes.
///
/// # Errors
/// If the folder for that cannot be used.
pub(super) fn store(args: &Args) -> anyhow::Result<(Store, Published)> {
    let (mut store, published) = Store::new(Lineage::random(), clock::now());
    let bounds = Bounds {
        count: args.history_count,
        bytes: usize::try_from(args.history_bytes).unwrap_or(usize::MAX),
        age: args.history_age,
    };
    store.bound(bounds);
    if let Some(dir) = &args.state_dir {
        let opened = Journal::open(dir, bounds);
        let (journal, history) = opened
            .with_context(|| format!("--state-dir {}: the history cannot be kept there", dir.display()))?;
        store.remember(journal, history);
    }
    Ok((store, published))
}

/// An index with the options from the flags.
pub(super) fn index(args: &Args) -> Index {
    // Destructured completely, so that an unused flag does not compile.
    let Args {
        manifests,
        default_ssl_certificate,
        default_backend_service,
        disable_catch_all,
        disable_svc_external_name,
        annotations_prefix,
        enable_ssl_passthrough,
        health_check_path,
        ingress_class,
        ingress_class_by_name,
        ignore_ingress_classes,
        controller_class,
        watch_ingress_without_class,
        watch_namespace,
        watch_namespace_selector,
        configmap,
        tcp_services_configmap,
        udp_services_configmap,
        ticket_keys_secret: _,
        metrics,
        // Used by the source.
        kubeconfig: _,
        disable_sync_events: _,
        pod_namespace: _,
        status: _,
        // Used by the listeners.
        listen: _,
        admin: _,
        insecure: _,
        max_connections: _,
        max_connections_per_peer: _,
        memory: _,
        validating_webhook: _,
        validating_webhook_certificate: _,
        validating_webhook_key: _,
        validating_webhook_configuration: _,
        // Used by the authority.
        ca_dir: _,
        ca_secret: _,
        account: _,
        certificate_life: _,
        // Used by the store.
        state_dir: _,
        history_count: _,
        history_bytes: _,
        history_age: _,
        // Used by the server, and by the program.
        group: _,
        peers: _,
        settle: _,
        log: _,
    } = args;
    Index::new(index::Options {
        ingress_class: ingress_class.clone(),
        controller_class: controller_class.clone(),
        request_metrics: metrics.to_policy(controller_class),
        class_by_name: *ingress_class_by_name,
        ignores_classes: *ignore_ingress_classes,
        watch_without_class: *watch_ingress_without_class,
        default_certificate: default_ssl_certificate.clone(),
        configmap: configmap.clone(),
        tcp_services: tcp_services_configmap.clone(),
        udp_services: udp_services_configmap.clone(),
        // Most have none of the default names.
        expected: [
            (configmap, DEFAULT_CONFIGMAP),
            (tcp_services_configmap, DEFAULT_TCP_SERVICES),
            (udp_services_configmap, DEFAULT_UDP_SERVICES),
        ]
        .into_iter()
        .filter(|(name, default)| name.to_string() != *default)
        .map(|(name, _)| name.clone())
        .collect(),
        default_backend: default_backend_service.clone(),
        disable_catch_all: *disable_catch_all,
        no_external_names: *disable_svc_external_name,
        prefix: index::Prefix::new(annotations_prefix),
        passes_tls: *enable_ssl_passthrough,
        health_path: health_check_path.as_str().into(),
        ticket_keys: ticket_keys(args),
        watch_namespace: watch_namespace.as_deref().map(Arc::from),
        namespace_selector: watch_namespace_selector.clone(),
        folder: manifests.is_some(),
        // A folder is read completely.
        on_demand: manifests.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn only_a_configmap_that_a_flag_names_is_expected() {
        for (flags, expected) in [
            (&[][..], &[][..]),
            (&["--configmap=ingress-nginx/ingress-nginx-controller"], &[]),
            (&["--configmap=shop/settings"], &["ConfigMap shop/settings"]),
            (
                &[
                    "--manifests=examples",
                    "--tcp-services-configmap=shop/tcp",
                    "--udp-services-configmap=shop/udp",
                ],
                &["ConfigMap shop/tcp", "ConfigMap shop/udp"],
            ),
        ] {
            let args = Args::try_parse_from(["firth-control-plane"].iter().chain(flags)).unwrap();
            let mut index = index(&args);
            index.commit();
            let told: Vec<_> = index.problems().keys().map(ToString::to_string).collect();
            assert_eq!(told, expected, "{flags:?}");
        }
    }

    #[test]
    fn namespaces_are_named_or_described() {
        let args = |flags: &[&str]| Args::try_parse_from(["firth-control-plane"].iter().chain(flags));
        let (named, described) = ("--watch-namespace=shop", "--watch-namespace-selector=team in (a,b)");
        for fine in [&[named][..], &[described], &["--watch-namespace=", described], &[]] {
            assert!(fit(&args(fine).unwrap()).is_ok(), "{fine:?}");
        }
        let both = fit(&args(&[named, described]).unwrap()).unwrap_err().to_string();
        assert!(both.contains("mutually exclusive"), "{both}");
        let odd = args(&["--watch-namespace-selector=team is a"]).unwrap_err().to_string();
        assert!(odd.contains("one of =, ==, !=, in, notin, > and <"), "{odd}");
    }
}
