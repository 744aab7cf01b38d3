//! Compiled policies, deduplicated: paths with equal policies share one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;
use shared::policy::{HeaderChangeList, LocationPolicy, TextList};

use super::counts::Counted;
use super::sweep::Sweep;
use crate::table::policy::shortcuts::Shortcuts;
use crate::table::policy::{Policy, levels};

/// The compiled policies of tables, by the Routes' policies. Most of those are empty.
#[derive(Debug, Default)]
pub(super) struct Policies {
    compiled: HashMap<LocationPolicy, Weak<Policy>, RandomState>,
    /// The last one that Routes share: most are like the one before, and hashing takes longer than compiling paths.
    last: Option<(Arc<LocationPolicy>, Weak<Policy>)>,
    /// The fixed responses of all locations, and of all hosts, as of the last defaults; compiled once.
    of_locations: Option<Shortcuts>,
    of_hosts: Option<Arc<Shortcuts>>,
    sweep: Sweep,
    /// The client counters.
    pub(super) counted: Counted,
}

impl Policies {
    /// The policy of a Route over the fleet's defaults, by the policy that it shares with others; an error is a reason
    /// to respond with 503.
    pub(super) fn of_route(
        &mut self,
        defaults: &LocationPolicy,
        configured: &Arc<LocationPolicy>,
    ) -> Result<Arc<Policy>, Arc<str>> {
        if let Some((last, policy)) = &self.last
            && Arc::ptr_eq(last, configured)
            && let Some(policy) = policy.upgrade()
        {
            return Ok(policy);
        }
        let policy = self.of(defaults, configured)?;
        self.last = Some((Arc::clone(configured), Arc::downgrade(&policy)));
        Ok(policy)
    }

    /// The same for any policy.
    pub(super) fn of(
        &mut self,
        defaults: &LocationPolicy,
        configured: &LocationPolicy,
    ) -> Result<Arc<Policy>, Arc<str>> {
        if let Some(policy) = self.compiled.get(configured).and_then(Weak::upgrade) {
            return Ok(policy);
        }
        let Effective { policy: mut whole, intercepts, also_allowed } = effective(defaults, configured);
        if *configured != LocationPolicy::default() {
            // These are used without a location, so only the fleet's own policy has them compiled.
            (whole.block_user_agents, whole.block_referers) = (None, None);
            (whole.log_format_upstream, whole.log_format_escape_json, whole.log_format_escape_none) =
                (None, None, None);
            (whole.gzip_types, whole.gzip_disable, whole.brotli_types) = (None, None, None);
            (whole.disable_stream_access_log, whole.log_format_stream) = (None, None);
            (whole.request_metrics, whole.health_check_path) = (None, None);
            (whole.nginx_status_ipv4_whitelist, whole.nginx_status_ipv6_whitelist) = (None, None);
        }
        whole.shortcuts.clone_from(&configured.shortcuts);
        let mut policy = Policy::compile(&whole).map_err(|refused| refused.to_string())?;
        policy.shortcuts =
            Shortcuts::joined(policy.shortcuts.map(|it| *it), self.of_locations.as_ref()).map(Box::new);
        if let Some(zones) = &mut policy.zones {
            zones.count_in(|zone| self.counted.of(&format!("zone/{zone}")));
        }
        policy.errors.are_fleets = configured.custom_http_errors.is_none();
        policy.errors.intercepts = intercepts;
        policy.addresses.also(also_allowed.as_ref()).map_err(|refused| refused.to_string())?;
        let policy = Arc::new(policy);
        self.sweep.when_due(self.compiled.len(), || {
            self.compiled.retain(|_, policy| policy.strong_count() > 0);
            self.compiled.len()
        });
        self.compiled.insert(configured.to_owned(), Arc::downgrade(&policy));
        Ok(policy)
    }

    /// Called when the defaults changed: policies compiled over the old ones are not used again. Defaults that do not
    /// compile were refused on arrival.
    pub(super) fn renew(&mut self, defaults: &LocationPolicy) {
        self.compiled.clear();
        self.last = None;
        self.of_locations = Shortcuts::compile(defaults.shortcuts.as_ref()).ok().flatten();
        self.of_hosts = Shortcuts::compile(defaults.host_shortcuts.as_ref()).ok().flatten().map(Arc::new);
    }

    /// The fixed responses of a host that has these of its own.
    pub(super) fn of_host(&self, own: Option<Shortcuts>) -> Option<Arc<Shortcuts>> {
        match own {
            None => self.of_hosts.clone(),
            own => Shortcuts::joined(own, self.of_hosts.as_deref()).map(Arc::new),
        }
    }
}

/// What applies to a location.
#[derive(PartialEq)]
pub(super) struct Effective {
    policy: LocationPolicy,
    /// Whether responses of its backend are replaced.
    intercepts: bool,
    /// A second list of the only addresses that are allowed.
    also_allowed: Option<TextList>,
}

/// The policy of a Route over the fleet's.
pub(super) fn effective(defaults: &LocationPolicy, configured: &LocationPolicy) -> Effective {
    let mut policy = LocationPolicy::default();
    policy.overlay(defaults);
    policy.overlay(configured);
    append(&mut policy, defaults, configured);
    let also_allowed = join_lists(&mut policy, defaults, configured);
    Effective { policy, intercepts: intercepts(defaults, configured), also_allowed }
}

/// Adds what snippets of the fleet say to what those of the location say: in nginx' configuration they stand behind them
/// (as in ingress-nginx).
fn append(policy: &mut LocationPolicy, defaults: &LocationPolicy, configured: &LocationPolicy) {
    let changes = |list: &HeaderChangeList| list.changes.clone();
    if let (Some(all), Some(_)) = (&mut policy.host_header_changes, &configured.host_header_changes) {
        all.changes.extend(defaults.host_header_changes.iter().flat_map(changes));
    }
    if let (Some(all), Some(_)) = (&mut policy.header_changes, &configured.header_changes) {
        all.changes.extend(defaults.header_changes.iter().flat_map(changes));
    }
    if let (Some(all), Some(_)) = (&mut policy.host_error_answers, &configured.host_error_answers) {
        all.answers.extend(defaults.host_error_answers.iter().flat_map(|it| it.answers.clone()));
    }
    if let (Some(all), Some(_)) = (&mut policy.error_answers, &configured.error_answers) {
        all.answers.extend(defaults.error_answers.iter().flat_map(|it| it.answers.clone()));
    }
    let (fleets, own) = (defaults.proxy_cookie_flags.as_ref(), configured.proxy_cookie_flags.as_ref());
    policy.proxy_cookie_flags = levels::merged(fleets, own, false);
    let has = |count: Option<u32>| count.is_some_and(|count| count > 0);
    let (fleets, own) = (defaults.limit_requests.as_ref(), configured.limit_requests.as_ref());
    let has_rates = has(configured.limit_rps) || has(configured.limit_rpm);
    policy.limit_requests = levels::merged(fleets, own, has_rates);
    let (fleets, own) = (defaults.limit_in_progress.as_ref(), configured.limit_in_progress.as_ref());
    policy.limit_in_progress = levels::merged(fleets, own, has(configured.limit_connections));
    if let (Some(all), Some(_)) = (&mut policy.request_headers, &configured.request_headers) {
        all.headers.extend(defaults.request_headers.iter().flat_map(|list| list.headers.clone()));
    }
    if let Some(beside) = defaults.hide_headers_beside.as_ref().filter(|it| !it.values.is_empty()) {
        let own = configured.hide_headers.iter().flat_map(|list| &list.values);
        policy.hide_headers = Some(TextList { values: own.chain(&beside.values).cloned().collect() });
    }
    // Only compared: those of the fleet are compiled once, and joined then.
    if let (Some(all), Some(_)) = (&mut policy.shortcuts, &configured.shortcuts) {
        all.shortcuts.extend(defaults.shortcuts.iter().flat_map(|it| it.shortcuts.clone()));
        all.blocks.extend(defaults.shortcuts.iter().flat_map(|it| it.blocks.clone()));
    }
}

/// Joins the fleet's address lists with those of a snippet, which are no annotation in place of them. In nginx' configuration
/// the fleet's come first, and an allowlist denies everybody else. Those of a host are hidden by them there; here both
/// count. Returns the fleet's allowlist if a client has to be on it as well.
fn join_lists(
    policy: &mut LocationPolicy,
    defaults: &LocationPolicy,
    configured: &LocationPolicy,
) -> Option<TextList> {
    let is_hosts = configured.lists_go_on.is_some();
    if configured.lists_follow != Some(true) && !is_hosts {
        return None;
    }
    if let (Some(all), Some(fleets)) = (&mut policy.denylist_source_range, &defaults.denylist_source_range) {
        let own = configured.denylist_source_range.iter().flat_map(|list| &list.values);
        all.values = fleets.values.iter().chain(own).cloned().collect();
    }
    let fleets =
        defaults.allowlist_source_range.clone().filter(|_| configured.allowlist_source_range.is_some());
    match (fleets, is_hosts) {
        (Some(fleets), false) => {
            policy.allowlist_source_range = Some(fleets);
            None
        }
        (fleets, _) => fleets,
    }
}

/// Whether a location's responses of backends are replaced: nginx' `proxy_intercept_errors`. ingress-nginx switches it
/// on for the fleet or for a location where that has a list, each by its own switch, and nowhere off; snippets do both.
pub(super) fn intercepts(defaults: &LocationPolicy, configured: &LocationPolicy) -> bool {
    let lists = |it: &LocationPolicy| it.custom_http_errors.as_ref().is_some_and(|it| !it.values.is_empty());
    let fleets = defaults.disable_proxy_intercept_errors != Some(true);
    let own = configured.disable_proxy_intercept_errors != Some(true);
    let of_location = || configured.intercept_errors.or(defaults.intercept_errors);
    let of_host = || configured.host_intercept_errors.or(defaults.host_intercept_errors);
    if lists(configured) && own {
        return of_location() != Some(false);
    }
    of_location().or_else(of_host).unwrap_or_else(|| lists(defaults) && fleets)
}

#[cfg(test)]
mod tests {
    use shared::policy::{ErrorAnswer, ErrorAnswerList, ErrorPlace, StatusList};

    use super::*;
    use crate::table::policy::access::Listed;

    /// In nginx' configuration the fleet's lists come first. Those of a host would be hidden there.
    #[test]
    fn lists_of_snippets_leave_those_of_the_fleet_in_force() {
        let list = |text: &str| (!text.is_empty()).then(|| TextList { values: vec![text.to_owned()] });
        let lists = |allow: &str, deny: &str| LocationPolicy {
            allowlist_source_range: list(allow),
            denylist_source_range: list(deny),
            ..LocationPolicy::default()
        };
        let listed = |fleet: &LocationPolicy, own: LocationPolicy| {
            let mut policies = Policies::default();
            policies.renew(fleet);
            let policy = policies.of(fleet, &own).unwrap();
            ["10.0.0.1", "11.0.0.1", "12.0.0.1"]
                .map(|client| policy.addresses.say(client.parse().unwrap()) != Listed::Denied)
        };
        let annotation = |own: LocationPolicy| own;
        let of_location = |own| LocationPolicy { lists_follow: Some(true), ..own };
        let of_host = |own| LocationPolicy { lists_go_on: Some(false), ..own };
        let denying = lists("", "10.0.0.0/8");
        assert_eq!(listed(&denying, annotation(lists("", "11.0.0.1"))), [true, false, true]);
        for snippet in [of_location, of_host] {
            assert_eq!(listed(&denying, snippet(lists("", "11.0.0.1"))), [false, false, true]);
            assert_eq!(listed(&denying, snippet(lists("11.0.0.0/8", ""))), [false, true, false]);
            let everybody =
                LocationPolicy { denylist_source_range: Some(TextList::default()), ..lists("", "") };
            assert_eq!(listed(&denying, snippet(everybody)), [false, true, true]);
        }
        let allowing = LocationPolicy {
            allowlist_source_range: Some(TextList { values: vec!["10.0.0.0/8".into(), "11.0.0.0/8".into()] }),
            ..LocationPolicy::default()
        };
        let own = || lists("11.0.0.0/8", "");
        assert_eq!(listed(&allowing, annotation(own())), [false, true, false]);
        assert_eq!(
            listed(&allowing, of_location(own())),
            [true, true, false],
            "the first that denies the rest"
        );
        assert_eq!(listed(&allowing, of_host(own())), [false, true, false], "both");
        assert_eq!(listed(&allowing, of_host(lists("12.0.0.0/8", ""))), [false; 3]);
        assert_eq!(listed(&allowing, of_location(lists("", "11.0.0.1"))), [true, false, false]);
    }

    #[test]
    fn answers_of_a_snippet_come_before_those_of_the_fleets() {
        let answers = |host: &[u32], own: &[u32]| {
            let list = |errors: &[u32], path: &str| ErrorAnswerList {
                answers: errors
                    .iter()
                    .map(|error| ErrorAnswer {
                        error: *error,
                        place: Some(ErrorPlace { path: path.into(), ..ErrorPlace::default() }),
                        ..ErrorAnswer::default()
                    })
                    .collect(),
            };
            LocationPolicy {
                host_error_answers: Some(list(host, "/host")),
                error_answers: Some(list(own, "/own")),
                ..LocationPolicy::default()
            }
        };
        let policy = effective(&answers(&[1, 2], &[3, 4]), &answers(&[1], &[5])).policy;
        let errors = |list: Option<ErrorAnswerList>| -> Vec<_> {
            list.unwrap().answers.into_iter().map(|it| it.error).collect()
        };
        assert_eq!(errors(policy.host_error_answers), [1, 1, 2]);
        assert_eq!(errors(policy.error_answers), [5, 3, 4]);
    }

    /// nginx' `proxy_intercept_errors` of the fleet reaches each location; an annotation undoes only that of its own list, and
    /// the fleet's key only that of the fleet's.
    #[test]
    fn backend_errors_are_intercepted_where_a_list_is_configured() {
        let configured = |list: &[u32], disabled| LocationPolicy {
            custom_http_errors: (!list.is_empty()).then(|| StatusList { values: list.to_vec() }),
            disable_proxy_intercept_errors: disabled,
            ..LocationPolicy::default()
        };
        for (fleet, own, expected) in [
            (configured(&[], None), configured(&[], None), false),
            (configured(&[], None), configured(&[404], None), true),
            (configured(&[], None), configured(&[404], Some(true)), false),
            (configured(&[], Some(true)), configured(&[404], None), true),
            (configured(&[], Some(true)), configured(&[404], Some(false)), true),
            (configured(&[503], None), configured(&[], None), true),
            (configured(&[503], None), configured(&[], Some(true)), true),
            (configured(&[503], None), configured(&[404], Some(true)), true),
            (configured(&[503], Some(true)), configured(&[], Some(false)), false),
            (configured(&[503], Some(true)), configured(&[404], None), true),
            (configured(&[503], Some(true)), configured(&[], None), false),
        ] {
            let intercepts = Policies::default().of(&fleet, &own).unwrap().errors.intercepts;
            assert_eq!(intercepts, expected, "{fleet:?} {own:?}");
        }
        let (on, off) = (Some(true), Some(false));
        for (fleet, own, (host, location), expected) in [
            (&[][..], &[][..], (None, on), true),
            (&[], &[], (on, None), true),
            (&[], &[], (on, off), false),
            (&[503], &[], (off, None), false),
            (&[503], &[], (None, off), false),
            (&[503], &[], (off, on), true),
            (&[], &[404], (off, None), true),
        ] {
            let own = LocationPolicy {
                intercept_errors: location,
                host_intercept_errors: host,
                ..configured(own, None)
            };
            let policy = Policies::default().of(&configured(fleet, None), &own).unwrap();
            assert_eq!(policy.errors.intercepts, expected, "{fleet:?} {own:?}");
        }
    }

    #[test]
    fn block_lists_are_taken_from_the_fleet_only() {
        let list = |text: &str| Some(TextList { values: vec![text.into()] });
        let defaults = LocationPolicy {
            block_user_agents: list("AlphaBot"),
            block_referers: list("~x"),
            ..LocationPolicy::default()
        };
        let mut policies = Policies::default();
        let fleet = policies.of(&defaults, &LocationPolicy::default()).unwrap();
        assert!(fleet.blocks.is_some());
        let configured = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
        assert!(policies.of(&defaults, &configured).unwrap().blocks.is_none());
    }
}
