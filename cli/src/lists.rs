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

#[cfg(test)]
mod tests {
    use tonic_prost::prost::Message as _;

    use super::*;
    use crate::client;
    use crate::tests::fake;

    /// The item of a page, and the token of the next one.
    fn page(size: u32, token: &str) -> (String, String) {
        assert_eq!(size, PAGE);
        let (item, next) = match token {
            "" => ("one", "behind one"),
            "behind one" => ("two", "behind two"),
            "behind two" => ("three", ""),
            other => panic!("expected a token that was given away, got {other:?}"),
        };
        (item.to_owned(), next.to_owned())
    }

    fn reply(method: &str, asked: &[u8]) -> Vec<u8> {
        match method {
            "ListProxies" => {
                let asked = inspect::ListProxiesRequest::decode(asked).unwrap();
                let (id, next_page_token) = page(asked.page_size, &asked.page_token);
                let proxies = vec![inspect::Proxy { id, ..Default::default() }];
                inspect::ListProxiesResponse { proxies, next_page_token, ..Default::default() }
                    .encode_to_vec()
            }
            "ListResources" => {
                let asked = inspect::ListResourcesRequest::decode(asked).unwrap();
                assert_eq!((&*asked.kind, &*asked.version), ("host", "abcdef"));
                let (key, next_page_token) = page(asked.page_size, &asked.page_token);
                let resources = vec![inspect::ResourceSummary { key, ..Default::default() }];
                let version = "abcdef012345".to_owned();
                inspect::ListResourcesResponse { resources, version, next_page_token }.encode_to_vec()
            }
            "ListProblems" => {
                let asked = inspect::ListProblemsRequest::decode(asked).unwrap();
                let (object, next_page_token) = page(asked.page_size, &asked.page_token);
                let problems = vec![inspect::Problem { object, ..Default::default() }];
                inspect::ListProblemsResponse { problems, next_page_token }.encode_to_vec()
            }
            "Diff" => {
                let asked = inspect::DiffRequest::decode(asked).unwrap();
                // The newest version may be another one by the second page.
                let expected = if asked.page_token.is_empty() { ("old", "") } else { ("old1", "new1") };
                assert_eq!((&*asked.from, &*asked.to), expected);
                let (key, next_page_token) = page(asked.page_size, &asked.page_token);
                let changes = vec![inspect::Change { key, ..Default::default() }];
                let (from, to) = ("old1".to_owned(), "new1".to_owned());
                inspect::DiffResponse { from, to, changes, next_page_token }.encode_to_vec()
            }
            other => panic!("nobody asks for {other}"),
        }
    }

    #[tokio::test]
    async fn lists_are_read_to_their_end() {
        let (server, _task) = fake::start(reply);
        let mut inspect = client::inspect(client::endpoint(&server).unwrap().connect_lazy());
        let all = ["one", "two", "three"];
        let read = proxies(&mut inspect).await.unwrap().proxies;
        assert_eq!(read.iter().map(|it| &*it.id).collect::<Vec<_>>(), all);
        let (read, version) = resources(&mut inspect, "host", "abcdef").await.unwrap();
        assert_eq!(read.iter().map(|it| &*it.key).collect::<Vec<_>>(), all);
        assert_eq!(version, "abcdef012345");
        let read = problems(&mut inspect).await.unwrap();
        assert_eq!(read.iter().map(|it| &*it.object).collect::<Vec<_>>(), all);
        let read = differences(&mut inspect, "old".to_owned(), String::new()).await.unwrap();
        assert_eq!(read.changes.iter().map(|it| &*it.key).collect::<Vec<_>>(), all);
        assert_eq!((&*read.from, &*read.to, &*read.next_page_token), ("old1", "new1", ""));
    }
}
