//! `firth.identity.v1`: certificates over gRPC. [`crate::enrol`] decides about them.
//!
//! **Invariant:** no proof is logged or repeated in a response.

use std::net::IpAddr;
use std::time::Duration;

use shared::clock;
use shared::proto::identity;
use shared::proto::identity::enrol_request::Proof as Shown;
use shared::telemetry::Seldom;
use shared::tls::join::hex;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::admission::Caller;
use crate::authority::{Phase, RootState};
use crate::enrol::{EnrolError, Issued, Proof, Registrar};

/// Generated code of `firth.identity.v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/firth.identity.v1.rs"));
}
use generated::enrolment_server::{Enrolment, EnrolmentServer};
use generated::identity_server::{Identity, IdentityServer};

/// Limit of a message in bytes: a signing request has less than one KiB, a token a few.
const MESSAGE: usize = 32 * 1024;
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(1);

/// Both services. Clones share state.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    registrar: Registrar,
    warning: Arc<Mutex<Seldom>>,
}

impl Certificates {
    pub(super) fn new(registrar: Registrar) -> Self {
        Self { registrar, warning: Arc::new(Mutex::new(Seldom::new(WARNINGS))) }
    }

    pub(super) fn into_enrolment(self) -> EnrolmentServer<Self> {
        EnrolmentServer::new(self).max_decoding_message_size(MESSAGE)
    }

    pub(super) fn into_identity(self) -> IdentityServer<Self> {
        IdentityServer::new(self).max_decoding_message_size(MESSAGE)
    }

    fn answer(
        &self,
        issued: Result<Issued, EnrolError>,
        caller: Option<&Caller>,
    ) -> Result<identity::Issued, Status> {
        let address = caller.map_or_else(String::new, |caller| caller.address().to_string());
        match issued {
            Ok(issued) => {
                info!(identity = %issued.identity, %address, "a certificate is issued");
                let (chain, roots, seconds) = (issued.chain, issued.roots, issued.life.as_secs().max(1));
                Ok(identity::Issued { chain, roots, seconds })
            }
            Err(refused) => {
                let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(before) = warning.now(clock::now()) {
                    warn!(%address, before, "a certificate is refused: {refused}");
                }
                Err(status(&refused))
            }
        }
    }
}

fn status(refused: &EnrolError) -> Status {
    let text = refused.to_string();
    match refused {
        EnrolError::Proof(_) | EnrolError::Group { .. } => Status::permission_denied(text),
        EnrolError::Unavailable(_) => Status::unavailable(text),
        EnrolError::Issue(crate::authority::IssueError::Request) | EnrolError::Name(_) => {
            Status::invalid_argument(text)
        }
        EnrolError::Issue(_) => Status::internal(text),
    }
}

#[tonic::async_trait]
impl Enrolment for Certificates {
    async fn enrol(
        &self,
        request: Request<identity::EnrolRequest>,
    ) -> Result<Response<identity::Issued>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let asked = request.into_inner();
        let proof = match asked.proof {
            Some(Shown::JoinToken(text)) => Proof::Join(text),
            Some(Shown::AccountToken(token)) => Proof::Account(token),
            None => Proof::None,
        };
        // Every connection of this server has one.
        let address = caller.as_ref().map_or_else(|| IpAddr::from([0, 0, 0, 0]), |it| it.address().ip());
        let issued = self.registrar.enrol(proof, &asked.group, &asked.name, &asked.request, address).await;
        self.answer(issued, caller.as_ref()).map(Response::new)
    }
}

#[tonic::async_trait]
impl Identity for Certificates {
    async fn renew(
        &self,
        request: Request<identity::RenewRequest>,
    ) -> Result<Response<identity::Issued>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let asked = request.into_inner();
        let Some((caller, holder)) = caller.as_ref().and_then(|it| Some((it, it.identity()?))) else {
            return Err(Status::failed_precondition("a plaintext client has no certificate to renew"));
        };
        let issued = self.registrar.renew(holder, &asked.account_token, &asked.request).await;
        if let Ok(issued) = &issued {
            caller.lasts(issued.life);
        }
        self.answer(issued, Some(caller)).map(Response::new)
    }

    async fn rotate_authority(
        &self,
        _: Request<identity::RotateAuthorityRequest>,
    ) -> Result<Response<identity::RotateAuthorityResponse>, Status> {
        let signs = self.registrar.rotate().await.map_err(Status::failed_precondition)?;
        Ok(Response::new(identity::RotateAuthorityResponse { signs_in_seconds: rounded_up(signs) }))
    }

    async fn get_authority(
        &self,
        _: Request<identity::GetAuthorityRequest>,
    ) -> Result<Response<identity::GetAuthorityResponse>, Status> {
        let current = self.registrar.current().borrow().clone();
        let current =
            current.map_err(|why| Status::unavailable(format!("the authority is not read yet: {why}")))?;
        let life = self.registrar.life();
        Ok(Response::new(identity::GetAuthorityResponse {
            roots: current.authority.states(clock::wall(), life).into_iter().map(root).collect(),
            certificate_seconds: life.as_secs(),
            certificate_until: Some(current.until.into()),
        }))
    }
}

/// Whoever waits so many seconds has waited long enough.
fn rounded_up(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn root(state: RootState) -> identity::AuthorityRoot {
    let phase = match state.phase {
        Phase::Believed => identity::RootPhase::Believed,
        Phase::Signs => identity::RootPhase::Signs,
        Phase::Leaves => identity::RootPhase::Leaves,
    };
    identity::AuthorityRoot {
        digest: hex(&state.digest).to_string(),
        phase: phase.into(),
        signs_from: Some(state.signs_from.into()),
        leaves_at: state.leaves_at.map(Into::into),
        until: state.until.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_whole_seconds_is_no_shorter_than_it_is() {
        let times = [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)];
        for (millis, seconds) in times {
            assert_eq!(rounded_up(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
