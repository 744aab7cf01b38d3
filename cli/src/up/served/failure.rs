//! Determines why a path answers 503, as far as the control plane knows. Pure.

use control_plane::problem::OF_LAST_GOOD;
use serde_json::Value;
use shared::proto::inspect::Problem;

use super::dotted;
use crate::value::{field, integer};

/// A path, and its resources.
pub(super) struct Served<'a> {
    /// The object that it belongs to: `Ingress default/web`.
    pub(super) object: &'a str,
    pub(super) route: &'a Value,
    pub(super) host: &'a Value,
    /// Key of its Backend; empty for the default backend.
    pub(super) key: &'a str,
    pub(super) backend: &'a Value,
    /// Its endpoints, if they were counted.
    pub(super) endpoints: Option<usize>,
    /// The endpoints of the Service that answers in place of one without endpoints.
    pub(super) substitutes: Option<usize>,
}

impl Served<'_> {
    /// Why no request reaches its backend; `None`: there is no reason.
    pub(super) fn failure(&self, problems: &[Problem]) -> Option<String> {
        let denied = [self.route, self.host].into_iter().map(|body| field(body, "denied"));
        if let Some(denial) = denied.into_iter().find(|denial| !denial.is_null()) {
            let reason = field(denial, "reason").as_str().unwrap_or_default();
            return Some(reason.to_owned());
        }
        let is_elsewhere = redirect(self.route).is_some();
        if is_elsewhere || self.key.is_empty() || !field(self.backend, "external_name").is_null() {
            return None;
        }
        if field(self.backend, "port").is_null() {
            return Some(self.problem(problems));
        }
        let policy = field(self.backend, "policy");
        let by_address = field(policy, "service_upstream").as_bool() == Some(true);
        if by_address && !field(self.backend, "service").is_null() {
            return None;
        }
        let is_alone = self.substitutes.unwrap_or_default() == 0;
        (self.endpoints == Some(0) && is_alone).then(|| format!("{} has no endpoints", dotted(self.key)))
    }

    /// The problem of its object with its Service.
    fn problem(&self, problems: &[Problem]) -> String {
        let service = self.key.rsplit_once('/').map_or(self.key, |(service, _)| service);
        let about = format!("Service {service} ");
        let of_object = problems.iter().filter(|it| it.object == self.object);
        let mut reasons = of_object.map(|it| it.reason.strip_prefix(OF_LAST_GOOD).unwrap_or(&it.reason));
        let unknown = || format!("Service {service}, or its port, does not exist");
        let reason = reasons.find(|reason| reason.starts_with(&about));
        reason.map_or_else(unknown, |it| it.trim_end_matches(": answers 503").to_owned())
    }
}

/// Why paths answer 503: the ConfigMap of the fleet asks for a restriction that is not enforced.
pub(super) struct Guard {
    reason: String,
    /// Locations may be exempt from it.
    is_firewall: bool,
}

impl Guard {
    /// Why the paths of a Route do.
    pub(super) fn of(&self, route: &Value) -> Option<String> {
        let is_exempt = field(field(route, "policy"), "enable_modsecurity").as_bool() == Some(false);
        (!(self.is_firewall && is_exempt)).then(|| self.reason.clone())
    }
}

/// What the ConfigMap of the fleet asks for, if that is not enforced.
pub(super) fn guard(settings: &Value, problems: &[Problem]) -> Option<Guard> {
    let guards = field(settings, "guards").as_array();
    let is_firewall = guards.is_none_or(Vec::is_empty);
    let inspects = || field(field(settings, "defaults"), "enable_modsecurity").as_bool() == Some(true);
    if is_firewall && !inspects() {
        return None;
    }
    let is_guard =
        |it: &&Problem| it.object.starts_with("ConfigMap ") && it.reason.ends_with("all paths answer 503");
    let of = |it: &Problem| match it.field.as_str() {
        "" => it.object.clone(),
        field => format!("{}, {field}", it.object),
    };
    let what = problems.iter().find(is_guard).map_or_else(|| "the ConfigMap of the fleet".to_owned(), of);
    Some(Guard { reason: format!("{what}: a restriction that is not enforced"), is_firewall })
}

/// Whether what is listed in `custom-http-errors`, of a Route or of the fleet, has 503.
pub(super) fn has_page(route: &Value, settings: &Value) -> bool {
    let lists = |policy: &Value| {
        let list = field(field(policy, "custom_http_errors"), "values").as_array();
        list.is_some_and(|all| all.iter().any(|status| integer(status) == 503))
    };
    lists(field(route, "policy")) || lists(field(settings, "defaults"))
}

/// The redirect target of all requests for a Route's paths, if there is one: then no backend is used.
pub(super) fn redirect(route: &Value) -> Option<String> {
    let policy = field(route, "policy");
    let of_kind = |(name, code): (&str, u64)| {
        let place = field(policy, name).as_str().filter(|place| !place.is_empty())?;
        let code = field(policy, &format!("{name}_code")).as_u64().unwrap_or(code);
        Some(format!("{code}: redirected to {place}"))
    };
    [("temporal_redirect", 302), ("permanent_redirect", 301)].into_iter().find_map(of_kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(route: &Value, host: &Value, backend: &Value, endpoints: Option<usize>) -> Option<String> {
        let problem = |object: &str, reason: &str| Problem {
            object: object.to_owned(),
            reason: reason.to_owned(),
            ..Problem::default()
        };
        let problems = [
            problem("Ingress default/other", "Service default/web has no TCP port 81: answers 503"),
            problem("Ingress default/web", "Service default/web-2 does not exist: answers 503"),
            problem("Ingress default/web", "Service default/web has no TCP port 80: answers 503"),
        ];
        let served = Served {
            object: "Ingress default/web",
            route,
            host,
            key: "default/web/80",
            backend,
            endpoints,
            substitutes: None,
        };
        served.failure(&problems)
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let (none, fine) = (json!({}), json!({"port": {"name": "http"}}));
        let denied = json!({"denied": {"reason": "Ingress default/web: auth-type: digest"}});
        assert_eq!(failure(&none, &none, &fine, Some(2)), None);
        assert_eq!(failure(&none, &none, &fine, None), None, "not counted");
        assert_eq!(failure(&none, &none, &json!({"port": {}}), Some(1)), None);
        for (route, host) in [(&denied, &none), (&none, &denied)] {
            let problem = failure(route, host, &fine, Some(2));
            assert_eq!(problem.as_deref(), Some("Ingress default/web: auth-type: digest"));
        }
        let problem = failure(&none, &none, &fine, Some(0));
        assert_eq!(problem.as_deref(), Some("default/web:80 has no endpoints"));
        let problem = failure(&none, &none, &none, Some(0));
        assert_eq!(problem.as_deref(), Some("Service default/web has no TCP port 80"));
    }

    #[test]
    fn a_guard_of_the_fleet_is_in_the_way_of_every_path() {
        let of = |object: &str, field: &str, reason: &str| Problem {
            object: object.to_owned(),
            field: field.to_owned(),
            reason: reason.to_owned(),
            ..Problem::default()
        };
        let problems = [
            of("ConfigMap fleet/settings", "data.worker-processes", "has no effect here"),
            of("ConfigMap fleet/settings", "data.enable-modsecurity", "until then all paths answer 503"),
        ];
        let guarded = json!({"guards": ["GUARD_ADDRESSES"]});
        let reason = "ConfigMap fleet/settings, data.enable-modsecurity: a restriction that is not enforced";
        let inspected = json!({"defaults": {"enable_modsecurity": true}});
        let exempt = json!({"policy": {"enable_modsecurity": false}});
        for settings in [&guarded, &inspected] {
            let guard = guard(settings, &problems).unwrap();
            assert_eq!(guard.of(&json!({})).as_deref(), Some(reason));
            assert_eq!(guard.of(&exempt).is_none(), *settings == inspected);
        }
        assert!(guard(&guarded, &[]).is_some());
        assert!(guard(&json!({}), &problems).is_none());
    }

    #[test]
    fn a_redirect_needs_no_backend_and_is_denied_before_it() {
        let none = json!({});
        let moved = json!({"policy": {"permanent_redirect": "https://b.test"}});
        assert_eq!(redirect(&moved).as_deref(), Some("301: redirected to https://b.test"));
        assert_eq!(failure(&moved, &none, &none, Some(0)), None);
        let denied = json!({"denied": {"reason": "closed"}});
        assert_eq!(failure(&moved, &denied, &none, Some(0)).as_deref(), Some("closed"));
        let both = json!({"policy": {"permanent_redirect": "https://b.test", "temporal_redirect": "https://c.test",
            "temporal_redirect_code": 307}});
        assert_eq!(redirect(&both).as_deref(), Some("307: redirected to https://c.test"));
        assert_eq!(redirect(&json!({"policy": {"permanent_redirect": ""}})), None);
    }

    #[test]
    fn what_needs_no_endpoints_is_not_blamed_for_having_none() {
        let none = json!({});
        let named = json!({"externalName": {"name": "a.test", "port": 80}});
        assert_eq!(failure(&none, &none, &named, Some(0)), None);
        let by_address = json!({"port": {}, "policy": {"serviceUpstream": true}, "service": {"port": 80}});
        assert_eq!(failure(&none, &none, &by_address, Some(0)), None);
        let served = Served {
            object: "Ingress default/web",
            route: &none,
            host: &none,
            key: "default/web/80",
            backend: &json!({"port": {}}),
            endpoints: Some(0),
            substitutes: Some(1),
        };
        assert_eq!(served.failure(&[]), None, "its default-backend answers");
        assert_eq!(Served { key: "", ..served }.failure(&[]), None, "404");
    }
}
