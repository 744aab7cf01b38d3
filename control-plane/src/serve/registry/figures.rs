//! Metrics of the registry.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Proxy, Registry};
use crate::metrics::{LISTED, Listed, Proxies};
use crate::store::Head;

/// Reason of refusals that are not stored: there were too many.
const UNNAMED: &str = "unnamed";

impl Registry {
    /// The states of proxies: counted for all of them, and listed for the first ones by id.
    pub fn figures(&self, head: &Head, now: Instant) -> Proxies {
        let proxies = self.list();
        let mut figures = Proxies { unlisted: proxies.len().saturating_sub(LISTED), ..Proxies::default() };
        for proxy in &proxies {
            let behind = proxy.behind_since(head).map(|since| now.saturating_duration_since(since));
            let behind = behind.unwrap_or_default();
            figures.behind_most = figures.behind_most.max(behind);
            *state(&mut figures, proxy, head) += 1;
            if !proxy.is_silent() {
                count_refusals(&mut figures, proxy);
            }
            if figures.listed.len() < LISTED {
                let (id, node) = (proxy.id.clone(), proxy.node.clone());
                let version = proxy.config.root.map(|root| root.short()).unwrap_or_default();
                figures.listed.push(Listed { id, node, version, behind });
            }
        }
        figures
    }
}

/// The one state that a proxy is counted as.
fn state<'a>(figures: &'a mut Proxies, proxy: &Proxy, head: &Head) -> &'a mut i64 {
    if proxy.is_silent() {
        &mut figures.silent
    } else if proxy.is_diverged() {
        &mut figures.diverged
    } else if !proxy.is_in_sync(head) {
        &mut figures.behind
    } else if proxy.refused_total() > 0 {
        &mut figures.refusing
    } else {
        &mut figures.in_sync
    }
}

fn count_refusals(figures: &mut Proxies, proxy: &Proxy) {
    let codes: &mut BTreeMap<_, _> = &mut figures.codes;
    let mut named = 0;
    for refused in proxy.config.refused.iter().chain(proxy.live.refused.iter()) {
        *codes.entry(refused.code).or_default() += 1;
        named += 1;
    }
    let total = i64::from(proxy.refused_total());
    if total > named {
        *codes.entry(UNNAMED).or_default() += total - named;
    }
    figures.refused += total;
}
