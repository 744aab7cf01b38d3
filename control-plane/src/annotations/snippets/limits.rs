//! Limits of clients that a snippet says: nginx' `limit_req` and `limit_conn`, by zones of the ConfigMap's `http-snippet`.
//!
//! **Invariant:** they are taken all together or not at all, and none acts without its zone: what it limits is denied then.

use shared::policy::{LimitList, LocationPolicy, SnippetLevel, ZoneLimit};

use super::headers::MOST;
use super::tokens::Directive;
use super::zones::Zones;

/// The limits of one level of nginx' configuration.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Limits {
    /// Of the rates of requests.
    requests: Option<LimitList>,
    /// Of the requests in progress.
    in_progress: Option<LimitList>,
    /// The statuses of requests that exceed these.
    too_fast: Option<u32>,
    too_many: Option<u32>,
}

impl Limits {
    /// Takes the limits out of a snippet, if they are supported.
    pub(super) fn take(directives: &mut Vec<Directive>, level: SnippetLevel) -> Option<Self> {
        let is_one = |it: &Directive| {
            let names = ["limit_conn", "limit_conn_status", "limit_req", "limit_req_status"];
            names.contains(&it.name()) && it.depth == 0 && !it.is_block
        };
        let found: Vec<_> = directives.iter().filter(|it| is_one(it)).collect();
        if found.is_empty() || found.len() > MOST {
            return None;
        }
        let mut limits = Self::default();
        let add = |to: &mut Option<LimitList>, limit| {
            let list = to.get_or_insert_with(|| LimitList { level: Some(level.into()), limits: Vec::new() });
            list.limits.push(limit);
        };
        for it in found {
            match it.name() {
                "limit_req" => add(&mut limits.requests, rate(it.arguments())?),
                "limit_conn" => add(&mut limits.in_progress, count(it.arguments())?),
                // nginx refuses a second one.
                "limit_req_status" if limits.too_fast.is_none() => limits.too_fast = Some(status(it)?),
                "limit_conn_status" if limits.too_many.is_none() => limits.too_many = Some(status(it)?),
                _ => return None,
            }
        }
        directives.retain(|it| !is_one(it));
        Some(limits)
    }

    /// Fills in what the zones say.
    ///
    /// # Errors
    /// The name of one that there is not, or that is not supported.
    pub(crate) fn fill(&mut self, zones: &Zones) -> Result<(), String> {
        fill([&mut self.requests, &mut self.in_progress], zones)
    }

    /// Sets the fields of a location, which has none of this level.
    pub(crate) fn put(self, policy: &mut LocationPolicy) {
        let Self { requests, in_progress, too_fast, too_many } = self;
        policy.limit_requests = policy.limit_requests.take().or(requests);
        policy.limit_in_progress = policy.limit_in_progress.take().or(in_progress);
        policy.limit_req_status_code = policy.limit_req_status_code.or(too_fast);
        policy.limit_conn_status_code = policy.limit_conn_status_code.or(too_many);
    }

    /// Sets them as those of all hosts or locations, in place of an outer level's.
    pub(crate) fn put_inside(self, defaults: &mut LocationPolicy) {
        let Self { requests, in_progress, too_fast, too_many } = self;
        defaults.limit_requests = requests.or_else(|| defaults.limit_requests.take());
        defaults.limit_in_progress = in_progress.or_else(|| defaults.limit_in_progress.take());
        defaults.limit_req_status_code = too_fast.or(defaults.limit_req_status_code);
        defaults.limit_conn_status_code = too_many.or(defaults.limit_conn_status_code);
    }

    /// Sets them for a location of the hosts, unless it has limits of its own: nginx' inner level hides the outer one.
    pub(crate) fn put_unless_own(&self, policy: &mut LocationPolicy) {
        let mut of_hosts = self.clone();
        let has = |count: Option<u32>| count.is_some_and(|count| count > 0);
        of_hosts.requests = of_hosts.requests.filter(|_| !has(policy.limit_rps) && !has(policy.limit_rpm));
        of_hosts.in_progress = of_hosts.in_progress.filter(|_| !has(policy.limit_connections));
        of_hosts.put(policy);
    }
}

/// Fills in the limits of a location.
///
/// # Errors
/// The name of a zone that there is not, or that is not supported.
pub(crate) fn fill_in(policy: &mut LocationPolicy, zones: &Zones) -> Result<(), String> {
    fill([&mut policy.limit_requests, &mut policy.limit_in_progress], zones)
}

fn fill(lists: [&mut Option<LimitList>; 2], zones: &Zones) -> Result<(), String> {
    let mut limits = lists.into_iter().flatten().flat_map(|list| &mut list.limits);
    limits.try_for_each(|it| if zones.fill(it) { Ok(()) } else { Err(it.zone.clone()) })
}

/// `limit_req zone=NAME [burst=NUMBER] [nodelay | delay=NUMBER]`.
fn rate(arguments: &[String]) -> Option<ZoneLimit> {
    let (mut zone, mut burst, mut delay) = (None, 0, Some(0));
    for it in arguments {
        match it.split_once('=') {
            Some(("zone", name)) if zone.is_none() && !name.is_empty() => zone = Some(name.to_owned()),
            Some(("burst", number)) => burst = positive(number)?,
            Some(("delay", number)) => delay = Some(positive(number)?),
            None if it == "nodelay" => delay = None,
            _ => return None,
        }
    }
    Some(ZoneLimit { zone: zone?, burst, delay, ..ZoneLimit::default() })
}

/// `limit_conn ZONE NUMBER`.
fn count(arguments: &[String]) -> Option<ZoneLimit> {
    let [zone, number] = arguments else { return None };
    let in_progress = positive(number).filter(|it| *it <= 65_535)?;
    Some(ZoneLimit { zone: zone.clone(), in_progress, ..ZoneLimit::default() })
}

fn positive(number: &str) -> Option<u32> {
    let is_number = number.bytes().all(|b| b.is_ascii_digit());
    number.parse().ok().filter(|it| is_number && *it > 0)
}

fn status(directive: &Directive) -> Option<u32> {
    let [number] = directive.arguments() else { return None };
    positive(number).filter(|status| (400..=599).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str) -> Option<Limits> {
        Limits::take(&mut tokens::directives(text).unwrap(), SnippetLevel::Locations)
    }

    fn shown(limits: &Limits) -> Vec<String> {
        let line = |it: &ZoneLimit| {
            format!(
                "{} {} {}/{} {} {:?} {}",
                it.zone, it.key, it.requests, it.seconds, it.burst, it.delay, it.in_progress
            )
        };
        let lists = limits.requests.iter().chain(&limits.in_progress);
        lists.flat_map(|list| list.limits.iter().map(line)).collect()
    }

    #[test]
    fn limits_are_those_of_their_zones() {
        let zones = Zones::of(
            "limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s; limit_req_zone $host$http_x_key rate=5r/m zone=b:1m;
             limit_conn_zone $server_name zone=c:10m; limit_req_zone $unknown zone=d:1m rate=1r/s;
             limit_req_zone $host zone=twice:1m rate=1r/s; limit_req_zone $uri zone=twice:1m rate=2r/s;",
        );
        for (text, expected) in [
            ("limit_req zone=a;", "a $binary_remote_addr 10/1 0 Some(0) 0"),
            ("limit_req zone=a burst=20 nodelay;", "a $binary_remote_addr 10/1 20 None 0"),
            ("limit_req burst=5 zone=b delay=3;", "b $host$http_x_key 5/60 5 Some(3) 0"),
            ("limit_conn c 7;", "c $server_name 0/0 0 None 7"),
        ] {
            let mut limits = taken(text).unwrap();
            assert_eq!(limits.fill(&zones), Ok(()), "{text}");
            assert_eq!(shown(&limits), [expected], "{text}");
        }
        for (text, zone) in [
            ("limit_req zone=none;", "none"),
            ("limit_req zone=c;", "c"),
            ("limit_conn a 1;", "a"),
            ("limit_req zone=d;", "d"),
            ("limit_req zone=twice;", "twice"),
            ("limit_req zone=a; limit_conn none 1;", "none"),
        ] {
            assert_eq!(taken(text).unwrap().fill(&zones), Err(zone.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_nginx_refuses_is_not_taken() {
        for text in [
            "limit_req;",
            "limit_req a;",
            "limit_req zone=;",
            "limit_req zone=a burst=0;",
            "limit_req zone=a burst=x;",
            "limit_req zone=a burst=+1;",
            "limit_req zone=a wait;",
            "limit_req zone=a zone=b;",
            "limit_conn a;",
            "limit_conn a 0;",
            "limit_conn a 65536;",
            "limit_req_status 200;",
            "limit_req_status 429; limit_req_status 430;",
            "limit_req zone=a; limit_req_status x;",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
        assert!(taken("limit_req_status 429; limit_conn_status 420;").is_some());
        assert!(taken(&"limit_req zone=a;".repeat(MOST + 1)).is_none());
    }
}
