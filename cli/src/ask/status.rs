//! `firth status`: how many proxies serve an object, and why the others do not.

mod view;

use std::process::ExitCode;
use std::time::Duration;

use shared::clock;
use shared::proto::inspect;
use shared::telemetry::without_links;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{awaited, connect, given, late, show};
use crate::args::StatusArgs;
use crate::client::{AskError, Inspect};
use crate::output::{self, printable};
use view::View;

/// Exit code: some proxies do not have it yet, or their state is unknown.
const NOT_YET: u8 = 3;
/// Exit code: some proxies will not serve it.
const NEVER: u8 = 4;
/// Exit code: nothing is known of the object, because nobody answered. The same as of an invalid command line, and not that
/// of an object that does not exist, for which somebody may wait.
pub(super) const UNANSWERED: u8 = 2;
/// Interval of retries while the control plane is unreachable.
const AGAIN: Duration = Duration::from_millis(500);

/// What a response means for `--wait`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    All,
    NotYet,
    Never,
    /// It is not served here, which is no success even if no proxy serves it any more.
    Elsewhere,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::All => Self::SUCCESS,
            Outcome::NotYet => Self::from(NOT_YET),
            Outcome::Never => Self::from(NEVER),
            // As of one that was never served here.
            Outcome::Elsewhere => Self::FAILURE,
        }
    }
}

/// The output, and the exit code of the process.
///
/// # Errors
/// If nobody answers, or there is no such object.
pub(super) async fn answer(args: &StatusArgs) -> anyhow::Result<(String, ExitCode)> {
    let status = match waits(args) {
        false => {
            let once = async {
                let asked = connect(&args.ask).await?.status(request(args)).await;
                anyhow::Ok(given(&args.ask, asked)?.into_inner())
            };
            awaited(once, || output::progress(&late(&args.ask.server))).await?
        }
        true => wait(args).await?,
    };
    if is_uncounted(&status, args.resource_version.as_deref()) {
        anyhow::bail!(
            "--resource-version: that control plane reads a folder, where nothing counts versions of objects: ask without it"
        );
    }
    let outcome = outcome(&status, args.resource_version.as_deref());
    let view = View::of(status, args.resource_version.as_deref());
    Ok((show(&args.ask, &view, View::text)?, outcome.into()))
}

/// Whether there is time to wait.
fn waits(args: &StatusArgs) -> bool {
    args.wait && !args.timeout.is_zero()
}

/// Whether the control plane has said that there is no such object.
pub(super) fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AskError::Missing { .. }))
}

fn request(args: &StatusArgs) -> inspect::StatusRequest {
    let (namespace, name) = args.object.clone();
    inspect::StatusRequest { kind: args.kind.clone(), namespace, name }
}

/// What was received while waiting.
#[derive(Default)]
struct Heard {
    /// The newest response; an inner `None`: the object does not exist.
    last: Option<Option<inspect::StatusResponse>>,
    /// Why it does not exist, as far as known.
    why: String,
    /// The progress that was last printed.
    last_line: String,
}

/// The first response that settles it, or the last one before the timeout. Progress goes to standard error.
async fn wait(args: &StatusArgs) -> anyhow::Result<inspect::StatusResponse> {
    let until = Instant::from_std(clock::now() + args.timeout);
    let mut heard = Heard::default();
    let mut failed = None;
    loop {
        match timeout_at(until, follow(args, &mut heard)).await {
            Ok(Ok(status)) => return Ok(status),
            Ok(Err(error)) if !may_pass(&error) => return Err(error),
            Ok(Err(error)) => {
                heard.say(without_links(format!("{error:#}")));
                failed = Some(error);
                if let Some(at) = again(Instant::now(), until) {
                    sleep_until(at).await;
                    continue;
                }
            }
            Err(_) => {}
        }
        return heard.end(args, failed);
    }
}

/// When to ask again; `None`: no time is left for that.
fn again(now: Instant, until: Instant) -> Option<Instant> {
    Some(now + AGAIN).filter(|at| *at < until)
}

/// Whether to ask again. A missing identity is waited for: a `firth up` that has just begun is about to write it.
fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_none_or(AskError::may_pass)
}

/// Follows one stream until a response settles it.
async fn follow(args: &StatusArgs, heard: &mut Heard) -> anyhow::Result<inspect::StatusResponse> {
    let watch = async {
        let mut inspect: Inspect = connect(&args.ask).await?;
        let object = Some(request(args));
        let asked = inspect.watch_status(inspect::WatchStatusRequest { object }).await;
        anyhow::Ok(given(&args.ask, asked)?.into_inner())
    };
    let mut answers = awaited(watch, || heard.say_late(&args.ask.server)).await?;
    while let Some(answer) = given(&args.ask, answers.message().await)? {
        let status = answer.status.unwrap_or_default();
        if let Some(settled) = heard.take(status, args.resource_version.as_deref()) {
            return Ok(settled);
        }
    }
    Err(AskError::Ended { server: args.ask.server.clone() }.into())
}

impl Heard {
    /// Takes in a response, and returns it if it settles the question.
    fn take(
        &mut self,
        status: inspect::StatusResponse,
        wanted: Option<&str>,
    ) -> Option<inspect::StatusResponse> {
        if is_uncounted(&status, wanted) {
            return Some(status);
        }
        if status.state.is_empty() {
            // The object does not exist now, whatever was received before.
            self.last = Some(None);
            let why: Vec<_> = status.problems.iter().map(|problem| printable(&problem.reason)).collect();
            self.why = why.join("; ");
            let why = if self.why.is_empty() { "not there yet" } else { &self.why };
            self.say(format!("{}: {why}", status.object));
            return None;
        }
        self.say(View::of(status.clone(), wanted).line());
        if is_settled(&status, wanted) {
            return Some(status);
        }
        self.last = Some(Some(status));
        None
    }

    fn say(&mut self, line: String) {
        if self.is_news(&line) {
            output::progress(&line);
        }
    }

    /// That there is no answer yet: not again with each try, after which is said what came of it.
    fn say_late(&mut self, server: &str) {
        if self.last_line.is_empty() {
            self.say(late(server));
        }
    }

    fn is_news(&mut self, line: &str) -> bool {
        let is_news = self.last_line != line;
        line.clone_into(&mut self.last_line);
        is_news
    }

    /// The timeout has passed. Without any response, it is unknown whether the object exists.
    fn end(
        self,
        args: &StatusArgs,
        failed: Option<anyhow::Error>,
    ) -> anyhow::Result<inspect::StatusResponse> {
        let error = match self.last {
            Some(Some(status)) => return Ok(status),
            Some(None) => {
                let colon = if self.why.is_empty() { "" } else { ": " };
                let (kind, (namespace, name), why) = (&args.kind, &args.object, &self.why);
                // As elsewhere: Ingress, not ingress.
                let kind = kind.get(..1).map_or_else(String::new, str::to_uppercase)
                    + kind.get(1..).unwrap_or_default();
                let message = format!("no {kind} {namespace}/{name} came within the time{colon}{why}");
                AskError::Missing { message }
            }
            None => match failed {
                Some(error) => return Err(error),
                None => AskError::Silent { server: args.ask.server.clone(), time: args.timeout },
            },
        };
        Err(error.into())
    }
}

/// What a response means. `wanted`: the requested version.
fn outcome(status: &inspect::StatusResponse, wanted: Option<&str>) -> Outcome {
    if !is_seen(status, wanted) {
        return Outcome::NotYet;
    }
    match status.state.as_str() {
        "programmed" | "deleted" => Outcome::All,
        "rejected" | "held-back" | "refused" => Outcome::Never,
        "not-served" => Outcome::Elsewhere,
        _ => Outcome::NotYet,
    }
}

/// Whether the requested version can never be seen.
fn is_uncounted(status: &inspect::StatusResponse, wanted: Option<&str>) -> bool {
    status.uncounted && wanted.is_some()
}

/// Whether waiting longer is useless: all proxies have it, or all have answered and one of them refuses it. One that is not served here
/// may be later: its class may be on its way.
fn is_settled(status: &inspect::StatusResponse, wanted: Option<&str>) -> bool {
    match outcome(status, wanted) {
        Outcome::All => true,
        Outcome::Never => status.state != "refused" || status.behind_total == 0,
        Outcome::NotYet | Outcome::Elsewhere => false,
    }
}

/// Whether the control plane has seen the requested version, or a later one. Resource versions are numbers (KEP-5504);
/// one that is not is compared as text.
fn is_seen(status: &inspect::StatusResponse, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else {
        return true;
    };
    let seen = &status.resource_version;
    match (seen.parse::<u64>(), wanted.parse::<u64>()) {
        (Ok(seen), Ok(wanted)) => seen >= wanted,
        _ => seen == wanted,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command, Question};

    fn status(state: &str, count: &str) -> inspect::StatusResponse {
        inspect::StatusResponse {
            state: state.to_owned(),
            resource_version: count.to_owned(),
            ..Default::default()
        }
    }

    #[test]
    fn who_waits_learns_all_or_never_and_otherwise_goes_on() {
        for (state, expected, ends) in [
            ("programmed", Outcome::All, true),
            ("deleted", Outcome::All, true),
            ("behind", Outcome::NotYet, false),
            ("silent", Outcome::NotYet, false),
            ("unknown", Outcome::NotYet, false),
            ("later-word", Outcome::NotYet, false),
            ("refused", Outcome::Never, true),
            ("rejected", Outcome::Never, true),
            ("held-back", Outcome::Never, true),
            ("not-served", Outcome::Elsewhere, false),
        ] {
            assert_eq!(outcome(&status(state, "7"), None), expected, "{state}");
            assert_eq!(is_settled(&status(state, "7"), None), ends, "{state}");
        }
        let others_are_on_their_way = inspect::StatusResponse { behind_total: 1, ..status("refused", "7") };
        assert!(!is_settled(&others_are_on_their_way, None));
    }

    #[test]
    fn an_older_version_is_not_the_one_that_is_meant() {
        for (seen, wanted, expected) in [
            ("9", "10", Outcome::NotYet),
            ("10", "10", Outcome::All),
            ("11", "10", Outcome::All),
            ("x-1", "x-1", Outcome::All),
            ("x-1", "x-2", Outcome::NotYet),
        ] {
            assert_eq!(outcome(&status("programmed", seen), Some(wanted)), expected, "{seen}");
        }
        assert_eq!(
            outcome(&status("rejected", "9"), Some("10")),
            Outcome::NotYet,
            "it may be mended by then"
        );
        assert_eq!(
            outcome(&status("programmed", ""), Some("10")),
            Outcome::NotYet,
            "a folder counts nothing"
        );
    }

    #[test]
    fn what_was_heard_last_counts_and_is_said_once() {
        let mut heard = Heard::default();
        assert_eq!(heard.take(status("behind", "7"), None), None);
        assert_eq!(heard.last, Some(Some(status("behind", "7"))));
        assert_eq!(heard.take(status("programmed", "7"), Some("8")), None, "an older version");
        let problem = inspect::Problem { reason: "names class x".to_owned(), ..Default::default() };
        let gone = inspect::StatusResponse { problems: vec![problem], ..status("", "") };
        assert_eq!(heard.take(gone, None), None);
        assert_eq!((&heard.last, heard.why.as_str()), (&Some(None), "names class x"));
        assert_eq!(heard.take(status("programmed", "8"), Some("8")), Some(status("programmed", "8")));
        let uncounted = inspect::StatusResponse { uncounted: true, ..status("programmed", "") };
        assert_eq!(heard.take(uncounted.clone(), Some("8")), Some(uncounted));
        assert_eq!(["a", "a", "b", "a"].map(|line| heard.is_news(line)), [true, false, true, true]);
        heard.say_late("s");
        assert_eq!(heard.last_line, "a", "there was an answer");
        let mut unheard = Heard::default();
        unheard.say_late("s");
        assert_eq!(unheard.last_line, "the control plane at s has not answered yet");
    }

    #[test]
    fn nobody_is_asked_again_who_would_answer_too_late() {
        let now = Instant::now();
        assert_eq!(again(now, now + AGAIN * 2), Some(now + AGAIN));
        assert_eq!(again(now, now + AGAIN), None);
        assert_eq!(again(now, now), None);
    }

    fn args(line: &str) -> StatusArgs {
        let Command::Ask(Question::Status(args)) = Args::parse_from(line.split(' ')).command else {
            panic!("a question")
        };
        args
    }

    #[test]
    fn who_has_no_time_asks_once() {
        assert!(waits(&args("firth status ingress a/b --wait")));
        assert!(waits(&args("firth status ingress a/b --wait --timeout 1s")));
        for line in ["firth status ingress a/b", "firth status ingress a/b --wait --timeout 0s"] {
            assert!(!waits(&args(line)), "{line}");
        }
    }

    #[test]
    fn a_version_that_nobody_counts_is_not_waited_for() {
        let of_folder = inspect::StatusResponse { uncounted: true, ..status("programmed", "") };
        assert!(is_uncounted(&of_folder, Some("7")) && !is_uncounted(&of_folder, None));
        assert!(!is_uncounted(&status("rejected", ""), Some("7")), "one that cannot be read may be mended");
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_not_waited_for() {
        let args = args("firth status ingress a/b --wait --timeout 1h --server ftp://a");
        let error = wait(&args).await.unwrap_err().to_string();
        assert!(error.starts_with("--server: expected"), "{error}");
    }

    /// Without any response, nothing is known about an object.
    #[tokio::test]
    async fn who_says_nothing_is_not_taken_for_who_says_that_there_is_none() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", silent.local_addr().unwrap());
        let line = format!("firth status ingress a/b --wait --timeout 1s --server {server}");
        let Command::Ask(Question::Status(args)) = Args::parse_from(line.split(' ')).command else {
            panic!("a question")
        };
        let error = wait(&args).await.unwrap_err().to_string();
        assert_eq!(error, format!("the control plane at {server} has not answered within 1s"));

        let end = |last: Option<Option<_>>, failed: bool| {
            let failed = failed.then(|| anyhow::anyhow!("cannot reach it"));
            Heard { last, ..Heard::default() }.end(&args, failed)
        };
        let missing = "no Ingress a/b came within the time";
        assert_eq!(end(Some(None), false).unwrap_err().to_string(), missing);
        assert_eq!(end(Some(None), true).unwrap_err().to_string(), missing, "it was heard of before");
        let heard = Heard { last: Some(None), why: "names class x".to_owned(), ..Heard::default() };
        assert_eq!(heard.end(&args, None).unwrap_err().to_string(), format!("{missing}: names class x"));
        assert_eq!(end(None, true).unwrap_err().to_string(), "cannot reach it");
        assert!(
            is_missing(&end(Some(None), true).unwrap_err()) && !is_missing(&end(None, true).unwrap_err())
        );
        assert_eq!(end(Some(Some(status("behind", "7"))), true).unwrap().state, "behind");
    }
}
