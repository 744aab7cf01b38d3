//! Queries to a control plane, and decisions: send one request, print the response as columns or as JSON.
//!
//! Each query has two pure functions from the response to text and to JSON; only [`run`] does I/O.

mod authority;
mod diff;
mod history;
mod pin;
pub(crate) mod problems;
mod proxies;
mod replicas;
mod resource;
mod resources;
mod status;

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use shared::clock;
use shared::proto::{identity as identity_proto, inspect};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::args::{AskArgs, AuthorityAction, DecisionArgs, Format, Question, SERVER};
use crate::client::{self, AskError, Authority, Inspect};
use crate::identity::{self, Somebody};
use crate::{lists, output};

/// Time after which a missing answer is mentioned. Replicas that hang take a second of it.
const LATE: Duration = Duration::from_secs(3);
/// What is said of a decision without an answer.
const OPEN: &str =
    "whether this was decided is not known, and it may still be: ask again (firth proxies shows a pin)";

/// Sends a query and prints the response.
///
/// # Errors
/// If there is no response, or it cannot be printed.
pub(crate) fn run(question: Question) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let late = late_of(&question);
    let is_status = matches!(question, Question::Status(_));
    let answered = runtime.block_on(async {
        match question {
            // It says itself how it goes on.
            Question::Status(_) => answer(question).await,
            _ => awaited(Box::pin(answer(question)), || output::progress(&late)).await,
        }
    });
    let (text, code) = match answered {
        Err(error) if is_status && !status::is_missing(&error) => {
            output::complain(&error);
            return Ok(ExitCode::from(status::UNANSWERED));
        }
        answered => answered?,
    };
    output::print(&text)?;
    Ok(code)
}

async fn answer(question: Question) -> anyhow::Result<(String, ExitCode)> {
    let text = match question {
        Question::Proxies(ask) => {
            let asked = lists::proxies(&mut connect(&ask).await?).await;
            let lists::Proxies { proxies, pin, replicas } = given(&ask, asked)?;
            let (views, pin) = (proxies::views(proxies), pin.map(pin::view));
            let odd = replicas::odd(&replicas::views(replicas));
            show(&ask, &views, |views| proxies::text(views) + &odd + &pinned(pin.as_ref()))
        }
        Question::Status(args) => return status::answer(&args).await,
        Question::Resources(args) => {
            let (kind, version) = (args.kind.unwrap_or_default(), args.at.unwrap_or_default());
            let mut inspect = connect(&args.ask).await?;
            let asked = lists::resources(&mut inspect, &kind, &version).await;
            let views = resources::views(given(&args.ask, asked)?.0);
            show(&args.ask, &views, |views| resources::text(views))
        }
        Question::Get(args) => {
            let request = inspect::GetResourceRequest {
                kind: args.kind,
                key: args.key,
                version: args.at.unwrap_or_default(),
            };
            let asked = connect(&args.ask).await?.get_resource(request).await;
            let view = resource::view(body(&args.ask, asked)?);
            show(&args.ask, &view, resource::text)
        }
        Question::History(args) => {
            let request = inspect::HistoryRequest { limit: args.limit };
            let asked = connect(&args.ask).await?.history(request).await;
            let mut answer = body(&args.ask, asked)?;
            let pin = answer.pin.take().map(pin::view);
            let odd = replicas::odd(&replicas::views(std::mem::take(&mut answer.replicas)));
            let views = history::views(answer, pin.as_ref().map(pin::Pin::version));
            show(&args.ask, &views, |views| pinned(pin.as_ref()) + &history::text(views) + &odd)
        }
        Question::Diff(args) => {
            let (from, to) = (args.from.unwrap_or_default(), args.to.unwrap_or_default());
            let asked = lists::differences(&mut connect(&args.ask).await?, from, to).await;
            let view = diff::view(given(&args.ask, asked)?);
            show(&args.ask, &view, diff::text)
        }
        Question::Pin(args) => {
            let DecisionArgs { lasts, note, replace, ask } = args.decision;
            let version = args.version.unwrap_or_default();
            let request = inspect::PinRequest { version, lasts: span(lasts), note, replace };
            let asked = connect(&ask).await?.pin(request).await;
            let view = pin::view(decided(&ask, asked)?.pin.unwrap_or_default());
            show(&ask, &view, pin::text)
        }
        Question::Rollback(args) => {
            let DecisionArgs { lasts, note, replace, ask } = args.decision;
            let request =
                inspect::RollbackRequest { version: args.version, lasts: span(lasts), note, replace };
            let asked = connect(&ask).await?.rollback(request).await;
            let view = pin::view(decided(&ask, asked)?.pin.unwrap_or_default());
            show(&ask, &view, pin::text)
        }
        Question::Unpin(ask) => {
            let asked = connect(&ask).await?.unpin(inspect::UnpinRequest {}).await;
            let view = pin::unpinned(decided(&ask, asked)?);
            show(&ask, &view, pin::unpinned_text)
        }
        Question::Authority(args) => {
            let mut authority = Authority::new(channel(&args.ask).await?);
            let rotates = args.action == AuthorityAction::Rotate;
            if rotates {
                let asked = authority.rotate_authority(identity_proto::RotateAuthorityRequest {}).await;
                decided(&args.ask, asked)?;
            }
            let asked = authority.get_authority(identity_proto::GetAuthorityRequest {}).await;
            let view = authority::view(authority::outcome(rotates, body(&args.ask, asked))?);
            show(&args.ask, &view, authority::text)
        }
        Question::Problems(ask) => {
            let asked = lists::problems(&mut connect(&ask).await?).await;
            let mut problems = given(&ask, asked)?;
            problems::sort(&mut problems);
            let views = problems::views(problems);
            show(&ask, &views, |views| problems::text(views))
        }
    };
    Ok((text?, ExitCode::SUCCESS))
}

/// Waits for an answer, and calls `late` if there is none for a while.
async fn awaited<T>(answer: impl Future<Output = T>, late: impl FnOnce()) -> T {
    let mut answer = pin!(answer);
    match timeout(LATE, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            late();
            answer.await
        }
    }
}

/// What is said where the answer to a question takes long.
fn late_of(question: &Question) -> String {
    let late = late(&question.ask().server);
    match question {
        Question::Pin(_) | Question::Rollback(_) | Question::Unpin(_) => {
            format!("{late}: it stores the decision first, in a cluster with the API server")
        }
        _ => late,
    }
}

fn late(server: &str) -> String {
    format!("the control plane at {server} has not answered yet")
}

/// The pin in force as a line; empty if there is none.
fn pinned(pin: Option<&pin::Pin>) -> String {
    pin.map(pin::text).unwrap_or_default()
}

fn span(lasts: Duration) -> Option<prost_types::Duration> {
    lasts.try_into().ok()
}

async fn connect(ask: &AskArgs) -> anyhow::Result<Inspect> {
    Ok(client::inspect(channel(ask).await?))
}

/// With this person's certificate, unless the control plane uses plaintext.
async fn channel(ask: &AskArgs) -> anyhow::Result<Channel> {
    // Before the identity is looked for: without an address there is none.
    let endpoint = client::endpoint(&ask.server)?;
    let connector = match client::is_plain(&ask.server) {
        true => None,
        false => {
            let folder = identity::folder(ask.identity.as_deref(), &ask.server)?;
            let me = Somebody::read(&folder, clock::wall());
            Some(me.map_err(|nobody| nobody.with_login(login(ask)))?.connector()?)
        }
    };
    Ok(client::connect(&ask.server, endpoint, connector).await?)
}

/// The command that logs in to the control plane that is asked, for the same folder.
fn login(ask: &AskArgs) -> String {
    let mut command = format!("{} login", output::program());
    if ask.server != SERVER {
        command += &format!(" --server {}", client::shown(&ask.server));
    }
    if let Some(folder) = &ask.identity {
        command += &format!(" --identity {}", folder.display());
    }
    command
}

/// The answer to a decision. Where there is none, the decision may have been stored all the same.
fn decided<T>(ask: &AskArgs, asked: Result<Response<T>, Status>) -> anyhow::Result<T> {
    body(ask, asked).map_err(|error| match error {
        AskError::Silent { .. } | AskError::Unreachable { .. } => anyhow::Error::new(error).context(OPEN),
        told => told.into(),
    })
}

fn body<T>(ask: &AskArgs, asked: Result<Response<T>, Status>) -> Result<T, AskError> {
    given(ask, asked.map(Response::into_inner))
}

fn given<T>(ask: &AskArgs, asked: Result<T, Status>) -> Result<T, AskError> {
    asked.map_err(|status| client::failed(&ask.server, &status))
}

fn show<T: Serialize>(ask: &AskArgs, view: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<String> {
    Ok(match ask.output {
        Format::Text => text(view),
        Format::Json => serde_json::to_string_pretty(view)? + "\n",
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tonic_prost::prost::Message;

    use super::*;
    use crate::args::{Args, Command};
    use crate::tests::fake;

    /// What a control plane is asked with this command.
    async fn asked<Q: Message + Default + 'static>(line: &str, method: &'static str) -> Q {
        let (note, noted) = std::sync::mpsc::channel();
        let (server, _task) = fake::start(move |it, asked| {
            assert_eq!(it, method);
            note.send(Q::decode(asked).unwrap()).unwrap();
            Vec::new()
        });
        let line = format!("firth {line} --server {server}");
        let Command::Ask(question) = Args::parse_from(line.split(' ')).command else { panic!("a question") };
        answer(question).await.unwrap();
        noted.recv().unwrap()
    }

    #[tokio::test]
    async fn a_question_has_what_the_command_line_says() {
        let list: inspect::ListResourcesRequest =
            asked("resources --kind host --at abcdef", "ListResources").await;
        assert_eq!((&*list.kind, &*list.version), ("host", "abcdef"));
        let get: inspect::GetResourceRequest = asked("get host a.test --at abcdef", "GetResource").await;
        assert_eq!((&*get.kind, &*get.key, &*get.version), ("host", "a.test", "abcdef"));
        let history: inspect::HistoryRequest = asked("history --limit 7", "History").await;
        assert_eq!(history.limit, 7);
        let diff: inspect::DiffRequest = asked("diff abcdef 123456", "Diff").await;
        assert_eq!((&*diff.from, &*diff.to), ("abcdef", "123456"));
    }

    #[tokio::test]
    async fn a_decision_has_what_the_command_line_says() {
        let how = "abcdef --for 2h --note because --replace";
        let two_hours = Some(prost_types::Duration { seconds: 7_200, nanos: 0 });
        let pin: inspect::PinRequest = asked(&format!("pin {how}"), "Pin").await;
        assert_eq!(
            (&*pin.version, pin.lasts, &*pin.note, pin.replace),
            ("abcdef", two_hours, "because", true)
        );
        let newest: inspect::PinRequest = asked("pin", "Pin").await;
        assert_eq!((&*newest.version, &*newest.note, newest.replace), ("", "", false));
        let back: inspect::RollbackRequest = asked(&format!("rollback {how}"), "Rollback").await;
        assert_eq!(
            (&*back.version, back.lasts, &*back.note, back.replace),
            ("abcdef", two_hours, "because", true)
        );
    }

    /// A listener that accepts connections and says nothing, as a process that hangs.
    fn nobody() -> (std::net::TcpListener, AskArgs) {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let line = format!("firth unpin --server http://{}", silent.local_addr().unwrap());
        let Command::Ask(Question::Unpin(ask)) = Args::parse_from(line.split(' ')).command else {
            panic!("a decision")
        };
        (silent, ask)
    }

    #[tokio::test]
    async fn one_that_hangs_is_said_to_hang_and_leaves_open_what_it_decides() {
        let (_silent, ask) = nobody();
        let endpoint = client::endpoint(&ask.server).unwrap().timeout(Duration::from_millis(1));
        let mut inspect = client::inspect(endpoint.connect_lazy());
        let asked = inspect.unpin(inspect::UnpinRequest {}).await;
        let error = decided(&ask, asked).unwrap_err();
        let hangs = format!("the control plane at {} has not answered within 30s", ask.server);
        assert_eq!(format!("{error:#}"), format!("{OPEN}: {hangs}"));
        let told = decided::<()>(&ask, Err(Status::failed_precondition("another version is pinned")));
        assert!(!format!("{:#}", told.unwrap_err()).contains(OPEN), "it was refused");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_long_is_mentioned_once() {
        for (after, expected) in [(LATE / 2, 0), (LATE * 2, 1), (LATE * 9, 1)] {
            let mut count = 0;
            let answer = awaited(async { tokio::time::sleep(after).await }, || count += 1);
            answer.await;
            assert_eq!(count, expected, "{after:?}");
        }
    }

    #[test]
    fn what_a_decision_waits_for_is_said() {
        for (line, is_decision) in
            [("unpin", true), ("rollback abcdef", true), ("pin", true), ("history", false)]
        {
            let line = format!("firth {line} --server http://a:1");
            let Command::Ask(question) = Args::parse_from(line.split(' ')).command else {
                panic!("a question")
            };
            let late = late_of(&question);
            assert!(late.starts_with("the control plane at http://a:1 has not answered yet"), "{late}");
            assert_eq!(late.contains("stores the decision first"), is_decision, "{line}: {late}");
        }
    }

    #[test]
    fn who_is_not_logged_in_is_told_the_whole_command() {
        let dir = tempfile::tempdir().unwrap();
        let of = |line: &str| {
            let line = format!("firth problems --identity {} {line}", dir.path().display());
            let Command::Ask(question) = Args::parse_from(line.split_whitespace()).command else {
                panic!("a question")
            };
            format!("{:#}", run(question).unwrap_err())
        };
        let folder = dir.path().display();
        let command = |server: &str| format!(" login{server} --identity {folder}`; `firth up` logs you in");
        let told = of("--server https://127.0.0.1:15011");
        assert!(told.contains(&command(" --server https://127.0.0.1:15011")), "{told}");
        assert!(of("").contains(&command("")), "{}", of(""));
    }

    #[test]
    fn an_address_is_judged_before_an_identity_is_looked_for() {
        for line in ["problems", "login --ca-dir /nowhere"] {
            let line = format!("firth {line} --server ftp://a --identity /nowhere");
            let error = match Args::parse_from(line.split(' ')).command {
                Command::Ask(question) => run(question).unwrap_err(),
                Command::Login(args) => crate::login::run(&args).unwrap_err(),
                _ => panic!("neither serves"),
            };
            assert!(error.to_string().starts_with("--server: expected"), "{error}");
        }
    }
}
