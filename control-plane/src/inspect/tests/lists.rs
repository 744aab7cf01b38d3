//! Lists and differences, page by page.

use super::*;

#[tokio::test]
async fn the_pages_of_a_list_are_the_list() {
    let mut bench = bench();
    let endpoints = Resource::Endpoints(Endpoints::default());
    let mut entries: Vec<_> = (0..25).map(|i| entry(&format!("b/{i:02}"), &endpoints)).collect();
    entries.push(entry("default", &Resource::Settings(Settings::default())));
    bench.commit("start", entries);
    let (mut listed, mut tokens, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = inspect::ListResourcesRequest { page_size: 4, page_token, ..Default::default() };
        let answer = bench.inspect.list_resources(Request::new(request)).await.unwrap().into_inner();
        assert!(answer.resources.len() <= 4);
        listed.extend(answer.resources.into_iter().map(|it| it.key));
        page_token = answer.next_page_token;
        tokens += 1;
        if page_token.is_empty() {
            break;
        }
    }
    let expected = std::iter::once("default".to_owned()).chain((0..25).map(|i| format!("b/{i:02}")));
    assert_eq!(listed, expected.collect::<Vec<_>>());
    assert_eq!(tokens, 7);
    let request =
        inspect::ListResourcesRequest { page_token: "nothing known".to_owned(), ..Default::default() };
    let status = bench.inspect.list_resources(Request::new(request)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn proxies_go_on_behind_the_last_of_the_page_before() {
    let bench = bench();
    let _seats = ["c", "a", "b"].map(|id| proxy(&bench.registry, id));
    let page = async |page_token: &str| {
        let request = inspect::ListProxiesRequest { page_size: 2, page_token: page_token.to_owned() };
        let answer = bench.inspect.list_proxies(Request::new(request)).await.unwrap().into_inner();
        let ids: Vec<_> = answer.proxies.into_iter().map(|proxy| proxy.id).collect();
        (ids.concat(), answer.next_page_token)
    };
    assert_eq!(page("").await, ("ab".to_owned(), "b".to_owned()));
    assert_eq!(page("b").await, ("c".to_owned(), String::new()));
    // An item that disappeared in between does not restart the list.
    assert_eq!(page("aa").await, ("bc".to_owned(), String::new()));
}

#[tokio::test]
async fn versions_are_compared_page_by_page() {
    let mut bench = bench();
    let diff = async |bench: &Bench, from: &str, to: &str, page_token: &str| {
        let request = inspect::DiffRequest {
            from: from.to_owned(),
            to: to.to_owned(),
            page_size: 1,
            page_token: page_token.to_owned(),
        };
        bench.inspect.diff(Request::new(request)).await.map(Response::into_inner)
    };
    bench.commit("start", vec![entry("default", &Resource::Settings(Settings::default()))]);
    let status = diff(&bench, "", "", "").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound, "{}", status.message());

    bench.host("one");
    let host = Resource::Host(Host::default());
    bench.commit("more", vec![entry("b.test", &host), entry("c.test", &host)]);
    let history = bench.history().await;
    let first = diff(&bench, "", "", "").await.unwrap();
    assert_eq!((&first.from, &first.to), (&history[1].version, &history[0].version));
    assert_eq!((&*first.changes[0].key, &*first.next_page_token), ("b.test", "host b.test"));
    bench.host("two");
    let second = diff(&bench, &first.from, &first.to, &first.next_page_token).await.unwrap();
    assert_eq!((&*second.changes[0].key, &*second.next_page_token), ("c.test", ""));

    let oldest = &history[2].version;
    let all = diff(&bench, oldest, "", "").await.unwrap();
    assert_eq!((&all.changes[0].change[..], all.changes[0].after.as_deref()), ("added", Some("two")));
    let status = diff(&bench, "0123456789ab", "", "").await.unwrap_err();
    assert!(status.message().contains(oldest), "it says which there are: {}", status.message());
}
