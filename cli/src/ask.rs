//! Questions to a control plane: ask once, print the answer as columns or as JSON.
//!
//! Each question is a pure pair of functions from the answer to text and to JSON; only [`run`] talks to anybody.

mod diff;
mod history;
mod problems;
mod proxies;
mod resource;
mod resources;

use serde::Serialize;
use shared::proto::inspect;
use tonic::{Response, Status};

use crate::args::{AskArgs, Format, Question};
use crate::client::{self, AskError};
use crate::{lists, output};

/// Asks and prints.
///
/// # Errors
/// Where there is no answer, or where it cannot be printed.
pub(crate) fn run(question: Question) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let text = runtime.block_on(answer(question))?;
    output::print(&text)?;
    Ok(())
}

async fn answer(question: Question) -> anyhow::Result<String> {
    match question {
        Question::Proxies(ask) => {
            let asked = lists::proxies(&mut client::connect(&ask.server).await?).await;
            let views = proxies::views(given(&ask, asked)?);
            show(&ask, &views, |views| proxies::text(views))
        }
        Question::Resources(args) => {
            let (kind, version) = (args.kind.unwrap_or_default(), args.at.unwrap_or_default());
            let mut inspect = client::connect(&args.ask.server).await?;
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
            let asked = client::connect(&args.ask.server).await?.get_resource(request).await;
            let view = resource::view(body(&args.ask, asked)?);
            show(&args.ask, &view, resource::text)
        }
        Question::History(args) => {
            let request = inspect::HistoryRequest { limit: args.limit };
            let asked = client::connect(&args.ask.server).await?.history(request).await;
            let views = history::views(body(&args.ask, asked)?);
            show(&args.ask, &views, |views| history::text(views))
        }
        Question::Diff(args) => {
            let (from, to) = (args.from.unwrap_or_default(), args.to.unwrap_or_default());
            let asked = lists::differences(&mut client::connect(&args.ask.server).await?, from, to).await;
            let view = diff::view(given(&args.ask, asked)?);
            show(&args.ask, &view, diff::text)
        }
        Question::Problems(ask) => {
            let asked = lists::problems(&mut client::connect(&ask.server).await?).await;
            let views = problems::views(given(&ask, asked)?);
            show(&ask, &views, |views| problems::text(views))
        }
    }
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
