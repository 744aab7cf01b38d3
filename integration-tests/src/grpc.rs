//! Queries to a control plane over gRPC, without generated clients: a method is a path and two messages.

use std::fmt::Display;
use std::time::Duration;

use shared::proto::inspect::{
    GetResourceRequest, GetResourceResponse, HistoryEntry, HistoryRequest, HistoryResponse,
    ListProblemsRequest, ListProblemsResponse, ListProxiesRequest, ListProxiesResponse, ListResourcesRequest,
    ListResourcesResponse, Problem, RollbackRequest, RollbackResponse, UnpinRequest, UnpinResponse,
};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tonic_prost::prost::Message;

use crate::eventually::eventually;

const ANSWER: Duration = Duration::from_secs(20);

/// Opens a channel to an address; tries again until somebody listens. Its streams may last for ever.
pub async fn channel(address: impl Display) -> Channel {
    open(Endpoint::from_shared(format!("http://{address}")).expect("an address")).await
}

async fn open(endpoint: Endpoint) -> Channel {
    eventually("the control plane takes connections", || endpoint.connect()).await
}

/// The service `firth.inspect.v1.Inspect` of one control plane.
#[derive(Clone, Debug)]
pub struct Inspect {
    grpc: Grpc<Channel>,
}

impl Inspect {
    /// Of the control plane at an address.
    pub async fn open(address: impl Display) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        Self::over(open(endpoint.timeout(ANSWER)).await)
    }

    /// Over a channel that is open.
    pub fn over(channel: Channel) -> Self {
        Self { grpc: Grpc::new(channel).max_decoding_message_size(64 << 20) }
    }

    /// The proxies that are connected, and the newest version.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn proxies(&self) -> Result<ListProxiesResponse, Status> {
        self.ask("ListProxies", ListProxiesRequest::default()).await
    }

    /// The resources of the newest version; of one kind, or all (empty).
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn resources(&self, kind: &str) -> Result<ListResourcesResponse, Status> {
        let mut request = ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        let mut resources = Vec::new();
        loop {
            let answer: ListResourcesResponse = self.ask("ListResources", request.clone()).await?;
            resources.extend(answer.resources);
            if answer.next_page_token.is_empty() {
                return Ok(ListResourcesResponse { resources, ..answer });
            }
            request.page_token = answer.next_page_token;
        }
    }

    /// One resource of the newest version.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn resource(&self, kind: &str, key: &str) -> Result<GetResourceResponse, Status> {
        let (kind, key, version) = (kind.to_owned(), key.to_owned(), String::new());
        self.ask("GetResource", GetResourceRequest { kind, key, version }).await
    }

    /// The versions of the configuration, the newest first.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn history(&self) -> Result<Vec<HistoryEntry>, Status> {
        let answer: HistoryResponse = self.ask("History", HistoryRequest { limit: 0 }).await?;
        Ok(answer.entries)
    }

    /// What is wrong with objects.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn problems(&self) -> Result<Vec<Problem>, Status> {
        let (mut request, mut problems) = (ListProblemsRequest::default(), Vec::new());
        loop {
            let answer: ListProblemsResponse = self.ask("ListProblems", request.clone()).await?;
            problems.extend(answer.problems);
            if answer.next_page_token.is_empty() {
                return Ok(problems);
            }
            request.page_token = answer.next_page_token;
        }
    }

    /// Goes back to a version for so long, also in place of another that is pinned.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn rollback(&self, version: &str, lasts: Duration, replace: bool) -> Result<(), Status> {
        let lasts = lasts.try_into().ok();
        let request = RollbackRequest { version: version.to_owned(), lasts, note: String::new(), replace };
        let _: RollbackResponse = self.ask("Rollback", request).await?;
        Ok(())
    }

    /// Ends the pin, and says which version is offered from then on.
    ///
    /// # Errors
    /// What the control plane answers instead.
    pub async fn unpin(&self) -> Result<String, Status> {
        let answer: UnpinResponse = self.ask("Unpin", UnpinRequest {}).await?;
        Ok(answer.version)
    }

    /// Waits until so many proxies are connected and have acknowledged the newest version on both lanes; returns that
    /// version.
    pub async fn in_sync(&self, count: usize) -> String {
        eventually(&format!("{count} proxies are in sync"), || async {
            let answer = self.proxies().await.map_err(|status| status.to_string())?;
            let connected = answer.proxies.iter().filter(|proxy| proxy.silent.is_none());
            let synced = answer.proxies.iter().filter(|proxy| proxy.in_sync).count();
            if synced == count && connected.count() == count {
                Ok(answer.version)
            } else {
                Err(format!("{:?}", answer.proxies))
            }
        })
        .await
    }

    async fn ask<Q, A>(&self, method: &str, question: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        call(self.grpc.clone(), &format!("firth.inspect.v1.Inspect/{method}"), question).await
    }
}

/// Calls a method, `PACKAGE.SERVICE/METHOD`.
///
/// # Errors
/// What is answered instead.
pub async fn call<Q, A>(mut grpc: Grpc<Channel>, method: &str, question: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let path = PathAndQuery::try_from(format!("/{method}")).expect("a path");
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let answer = grpc.unary(Request::new(question), path, ProstCodec::default()).await?;
    Ok(answer.into_inner())
}
