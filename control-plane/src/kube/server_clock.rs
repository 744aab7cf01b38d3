//! The API server's clock, as its responses tell it: the one clock that all replicas share.

use std::time::SystemTime;

use http::{Request, header};
use kube::Client;
use kube::client::Body;

use super::ask::{ANSWER, AskError, within};

/// A page that anyone may read. If this account may not, the refusal has a date as well.
const PAGE: &str = "/version";

/// What it says now, to the second; `None`: its responses have no date.
///
/// # Errors
/// If there is no response.
pub(super) async fn read(client: &Client) -> Result<Option<SystemTime>, AskError> {
    let request = Request::get(PAGE).body(Body::empty());
    let request = request.map_err(|error| AskError::Unanswered(error.to_string()))?;
    let response = within(ANSWER, client.send(request)).await?;
    let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(|date| httpdate::parse_http_date(date).ok()))
}
