//! Fetches complete lists from a control plane, page by page.

use shared::proto::inspect;
use tonic::Status;

use crate::client::Inspect;

/// Page size: the maximum of a control plane.
const PAGE: u32 = 10_000;

/// All proxies of all replicas.
pub(crate) struct Proxies {
    /// By id.
    pub(crate) proxies: Vec<inspect::Proxy>,
    /// The pin in force.
    pub(crate) pin: Option<inspect::Pin>,
    /// The replicas; empty if there is only one.
    pub(crate) replicas: Vec<inspect::Replica>,
}

/// All proxies, the pin in force, and the replicas.
///
/// # Errors
/// If the control plane does not respond to each page.
pub(crate) async fn proxies(from: &mut Inspect) -> Result<Proxies, Status> {
    let (mut proxies, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = inspect::ListProxiesRequest { page_size: PAGE, page_token };
        let answer = from.list_proxies(request).await?.into_inner();
        proxies.extend(answer.proxies);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            let (pin, replicas) = (answer.pin, answer.replicas);
            return Ok(Proxies { proxies, pin, replicas });
        }
    }
}

/// All resources of a kind (empty: of every kind) in a version (empty: the newest), by kind and key, and that version.
///
/// # Errors
/// If the control plane does not respond to each page.
pub(crate) async fn resources(
    from: &mut Inspect,
    kind: &str,
    version: &str,
) -> Result<(Vec<inspect::ResourceSummary>, String), Status> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = inspect::ListResourcesRequest {
            kind: kind.to_owned(),
            version: version.to_owned(),
            page_size: PAGE,
            page_token,
        };
        let answer = from.list_resources(request).await?.into_inner();
        all.extend(answer.resources);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return Ok((all, answer.version));
        }
    }
}

/// All problems, by object.
///
/// # Errors
/// If the control plane does not respond to each page.
pub(crate) async fn problems(from: &mut Inspect) -> Result<Vec<inspect::Problem>, Status> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = inspect::ListProblemsRequest { page_size: PAGE, page_token };
        let answer = from.list_problems(request).await?.into_inner();
        all.extend(answer.problems);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return Ok(all);
        }
    }
}

/// All differences between two versions, as one response.
///
/// # Errors
/// If the control plane does not respond to each page.
pub(crate) async fn differences(
    from: &mut Inspect,
    before: String,
    after: String,
) -> Result<inspect::DiffResponse, Status> {
    let request =
        inspect::DiffRequest { from: before, to: after, page_size: PAGE, page_token: String::new() };
    let mut whole = from.diff(request).await?.into_inner();
    while !whole.next_page_token.is_empty() {
        let request = inspect::DiffRequest {
            // The versions that the first page compared: the newest version may have changed.
            from: whole.from.clone(),
            to: whole.to.clone(),
            page_size: PAGE,
            page_token: std::mem::take(&mut whole.next_page_token),
        };
        let answer = from.diff(request).await?.into_inner();
        whole.changes.extend(answer.changes);
        whole.next_page_token = answer.next_page_token;
    }
    Ok(whole)
}
