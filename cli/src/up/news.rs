//! Events while `firth up` runs, one line each: changes as the proxy acknowledges them, problems and what the proxy
//! refuses as they appear and disappear.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::proto::inspect;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::{Status, Streaming};

use crate::client::Inspect;
use crate::{lists, moment};

/// Interval of polling problems: a rejected object changes nothing that is served, so no change reports it.
const LOOK: Duration = Duration::from_millis(500);

/// Changes and problems from now on.
pub(super) struct News {
    inspect: Inspect,
    changes: Streaming<inspect::WatchChangesResponse>,
    look: Interval,
    problems: Problems,
}

impl News {
    /// Starts to listen. The existing problems are the first lines.
    ///
    /// # Errors
    /// If the control plane does not respond.
    pub(super) async fn listen(mut inspect: Inspect) -> Result<Self, Status> {
        let changes = inspect.watch_changes(inspect::WatchChangesRequest {}).await?.into_inner();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Self { inspect, changes, look, problems: Problems::default() })
    }

    /// The next line. Cancel-safe.
    ///
    /// # Errors
    /// If the control plane has ended.
    pub(super) async fn next(&mut self) -> Result<String, Status> {
        loop {
            if let Some(line) = self.problems.lines.pop() {
                return Ok(line);
            }
            tokio::select! {
                biased;
                change = self.changes.message() => {
                    let change = change?.ok_or_else(|| Status::unavailable("the stream of changes has ended"))?;
                    return Ok(line(&change));
                }
                _ = self.look.tick() => {
                    let mut problems = lists::problems(&mut self.inspect).await?;
                    let proxies = lists::proxies(&mut self.inspect).await?.proxies;
                    problems.extend(proxies.into_iter().flat_map(|proxy| proxy.refused).map(refusal));
                    self.problems.update(problems);
                }
            }
        }
    }
}

/// What a pin does to an edit.
const HELD_BACK: &str = "held back by the pin until it ends";

/// `canary-weight 10 -> 50: version 1f3a92c04d7e, acknowledged by 1 of 1 in 4 ms`.
fn line(change: &inspect::WatchChangesResponse) -> String {
    if change.held_back > 0 && !change.config && change.changed == 0 {
        return format!("{}: {HELD_BACK}", change.cause);
    }
    let what = match (change.config, change.held_back) {
        (true, _) => format!("version {}", change.version),
        (false, 0) => "live".to_owned(),
        (false, _) => format!("{HELD_BACK}, except for endpoints and Secrets, which are live"),
    };
    let took = moment::span(Duration::from_micros(change.took_us));
    let (acked, proxies) = (change.acked, change.proxies);
    let answer = if proxies == 0 {
        "no proxy is connected".to_owned()
    } else if acked < proxies {
        format!("acknowledged by only {acked} of {proxies} within {took}")
    } else {
        format!("acknowledged by {acked} of {proxies} in {took}")
    };
    format!("{}: {what}, {answer}", change.cause)
}

/// The problems that were reported.
#[derive(Default)]
struct Problems {
    told: BTreeMap<[String; 4], String>,
    /// Pending lines, the next one last.
    lines: Vec<String>,
}

impl Problems {
    fn update(&mut self, mut problems: Vec<inspect::Problem>) {
        let mut now = BTreeMap::new();
        problems.sort_by_key(|problem| !["rejected", "refused", "unsupported"].contains(&&*problem.severity));
        for problem in problems {
            let line = sentence(&problem);
            let key = [problem.severity, problem.object, problem.field, problem.reason];
            if !self.told.contains_key(&key) {
                self.lines.push(line.clone());
            }
            now.insert(key, line);
        }
        for (key, line) in &self.told {
            // The same field was just reported with another reason; only a problem that is really gone is reported as
            // such.
            let still = now.keys().any(|other| other[1] == key[1] && other[2] == key[2]);
            if !now.contains_key(key) && !still {
                self.lines.push(format!("resolved: {line}"));
            }
        }
        self.told = now;
        self.lines.reverse();
    }
}

/// What a proxy refuses, such as a port that it cannot open, as a problem.
fn refusal(refused: inspect::Refused) -> inspect::Problem {
    inspect::Problem {
        object: format!("{} {}", refused.kind, refused.key),
        severity: "refused".to_owned(),
        reason: refused.reason,
        ..Default::default()
    }
}

fn sentence(problem: &inspect::Problem) -> String {
    let mut line = format!("{}: {}", problem.severity, problem.object);
    if !problem.field.is_empty() {
        line = format!("{line}, {}", problem.field);
    }
    line = format!("{line}: {}", problem.reason);
    if !problem.location.is_empty() {
        line = format!("{line} [{}]", problem.location);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> inspect::WatchChangesResponse {
        inspect::WatchChangesResponse {
            version: "1f3a92c04d7e".to_owned(),
            config: true,
            cause: "canary-weight 10 -> 50".to_owned(),
            changed: 1,
            acked: 1,
            proxies: 1,
            took_us: 4000,
            held_back: 0,
        }
    }

    #[test]
    fn an_edit_under_a_pin_is_not_said_to_be_live() {
        let held = inspect::WatchChangesResponse { config: false, changed: 0, held_back: 2, ..change() };
        assert_eq!(line(&held), "canary-weight 10 -> 50: held back by the pin until it ends");
        let both = inspect::WatchChangesResponse { changed: 1, ..held };
        let expected = "canary-weight 10 -> 50: held back by the pin until it ends, except for endpoints and Secrets, which are \
                        live, acknowledged by 1 of 1 in 4 ms";
        assert_eq!(line(&both), expected);
    }

    #[test]
    fn a_change_is_a_line() {
        let expected = "canary-weight 10 -> 50: version 1f3a92c04d7e, acknowledged by 1 of 1 in 4 ms";
        assert_eq!(line(&change()), expected);
        let live = inspect::WatchChangesResponse {
            config: false,
            cause: "EndpointSlice default/web-1: 1 -> 2 endpoints".to_owned(),
            took_us: 700,
            ..change()
        };
        assert_eq!(
            line(&live),
            "EndpointSlice default/web-1: 1 -> 2 endpoints: live, acknowledged by 1 of 1 in 0.7 ms"
        );
        let late = inspect::WatchChangesResponse { acked: 0, took_us: 10_000_000, ..change() };
        assert!(line(&late).ends_with("acknowledged by only 0 of 1 within 10.0 s"));
    }

    fn problem(reason: &str) -> inspect::Problem {
        inspect::Problem {
            object: "Ingress default/web".to_owned(),
            field: "spec.rules[0].host".to_owned(),
            severity: "rejected".to_owned(),
            reason: reason.to_owned(),
            location: "web.yaml:7".to_owned(),
            consequence: String::new(),
        }
    }

    #[test]
    fn problems_are_told_once_and_so_is_their_end() {
        let mut problems = Problems::default();
        problems.update(vec![problem("expected a host name, got \"-\"")]);
        let told =
            "rejected: Ingress default/web, spec.rules[0].host: expected a host name, got \"-\" [web.yaml:7]";
        assert_eq!(std::mem::take(&mut problems.lines), [told]);
        problems.update(vec![problem("expected a host name, got \"-\"")]);
        assert!(problems.lines.is_empty());
        problems.update(vec![]);
        assert_eq!(problems.lines, [format!("resolved: {told}")]);
    }

    #[test]
    fn what_is_rejected_comes_before_warnings() {
        let warning = inspect::Problem { severity: "warning".to_owned(), ..problem("odd") };
        let mut problems = Problems::default();
        problems.update(vec![warning, problem("bad")]);
        // The next one is the last.
        assert!(problems.lines[1].starts_with("rejected: "), "{:?}", problems.lines);
    }

    #[test]
    fn what_the_proxy_refuses_is_told_like_a_problem() {
        let refused = inspect::Refused {
            kind: "listener".to_owned(),
            key: "tcp/5432".to_owned(),
            reason: "port: cannot open tcp 5432".to_owned(),
            ..Default::default()
        };
        let mut problems = Problems::default();
        problems.update(vec![refusal(refused)]);
        assert_eq!(problems.lines, ["refused: listener tcp/5432: port: cannot open tcp 5432"]);
    }

    #[test]
    fn another_reason_for_the_same_field_is_no_good_news() {
        let mut problems = Problems::default();
        problems.update(vec![problem("a")]);
        problems.lines.clear();
        problems.update(vec![problem("b")]);
        assert_eq!(problems.lines.len(), 1);
        assert!(!problems.lines[0].starts_with("solved"));
    }
}
