//! Service accounts of a cluster, and the roles that they are mapped to.
//!
//! **Invariant:** the API server reviews each token, each time; concurrent reviews are bounded, and callers without a
//! certificate cannot delay those that have one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use shared::budget::Peers;
use shared::identity::{Role, fit};
use shared::name::ObjectName;
use tokio::sync::Semaphore;

use super::EnrolError;
use crate::kube::trust::{Holder, ReviewError, Trust};

/// Concurrent token reviews: one limit for callers with a certificate, one for those without.
const REVIEWS: usize = 16;
/// Concurrent reviews for one address without a certificate: anybody may send anything.
const OF_ADDRESS: usize = 4;
/// How long a caller waits if the limit is reached.
const TURN: Duration = Duration::from_secs(5);

/// Reviews tokens. Clones share state.
#[derive(Clone, Debug)]
pub struct Accounts {
    trust: Trust,
    roles: Arc<[(Role, ObjectName)]>,
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    addresses: Peers,
}

impl Accounts {
    /// With these accounts and their roles; their names are converted to the API server's format.
    pub fn new(trust: Trust, roles: Vec<(Role, ObjectName)>) -> Self {
        let turns = || Arc::new(Semaphore::new(REVIEWS));
        let addresses = Peers::new(OF_ADDRESS);
        Self { trust, roles: roles.into(), known: turns(), strangers: turns(), addresses }
    }

    /// The role and name of a token's holder that has no certificate yet.
    ///
    /// # Errors
    /// If the token cannot be reviewed or is not accepted, or its holder has no role.
    pub async fn meet(&self, token: &str, address: IpAddr) -> Result<(Role, String), EnrolError> {
        let place = self.addresses.enter(address);
        let _place = place.ok_or_else(|| {
            EnrolError::Unavailable("too many ask for certificates from this address at once".to_owned())
        })?;
        self.look(token, &self.strangers).await
    }

    /// The same for a holder that has a certificate.
    ///
    /// # Errors
    /// If the token cannot be reviewed or is not accepted, or its holder has no role.
    pub async fn meet_again(&self, token: &str) -> Result<(Role, String), EnrolError> {
        self.look(token, &self.known).await
    }

    async fn look(&self, token: &str, turns: &Semaphore) -> Result<(Role, String), EnrolError> {
        let turn = tokio::time::timeout(TURN, turns.acquire()).await;
        let busy = |_| EnrolError::Unavailable("too many ask for certificates at once".to_owned());
        let _turn = turn.map_err(busy)?;
        match self.trust.review(token).await {
            Ok(holder) => self.role(&holder),
            Err(error @ ReviewError::Unavailable(_)) => Err(EnrolError::Unavailable(error.to_string())),
            Err(error) => Err(EnrolError::Proof(error.to_string())),
        }
    }

    fn role(&self, holder: &Holder) -> Result<(Role, String), EnrolError> {
        let role = self.roles.iter().find(|(_, account)| *account == holder.account).map(|(role, _)| *role);
        let nobody =
            || EnrolError::Proof(format!("service account {} has no role here (--account)", holder.account));
        let role = role.ok_or_else(nobody)?;
        // The pods of a proxy share an account, and are distinguished by name.
        Ok((role, fit(holder.pod.as_deref().unwrap_or(&holder.account.name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::tests::fake::{Fake, Reply};

    fn accounts() -> Accounts {
        // Never answers reviews of strangers' tokens.
        let fake = Fake::new(|asked| match asked.body["spec"]["token"].as_str() {
            Some("ours") => Reply::Text(200, "{}".to_owned()),
            _ => Reply::Nothing,
        });
        Accounts::new(Trust::of(&fake), Vec::new())
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_keep_nobody_waiting_who_has_a_certificate() {
        let accounts = accounts();
        let asks = (0..100_u8).map(|last| accounts.meet("theirs", IpAddr::from([10, 0, 1, last])));
        let strangers = futures::future::join_all(asks);
        let again = accounts.meet_again("ours");
        tokio::select! {
            biased;
            _ = strangers => panic!("they were answered"),
            answer = again => assert!(matches!(answer, Err(EnrolError::Proof(_))), "the API server was asked: {answer:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_turns_and_no_more() {
        let accounts = accounts();
        let asks = (0..OF_ADDRESS).map(|_| accounts.meet("theirs", IpAddr::from([10, 0, 1, 1])));
        let strangers = futures::future::join_all(asks);
        let one_more = async {
            let busy = accounts.meet("ours", IpAddr::from([10, 0, 1, 1])).await;
            (busy, accounts.meet("ours", IpAddr::from([10, 0, 1, 2])).await)
        };
        tokio::select! {
            biased;
            _ = strangers => panic!("they were answered"),
            (busy, other) = one_more => {
                assert!(matches!(busy, Err(EnrolError::Unavailable(_))), "{busy:?}");
                assert!(matches!(other, Err(EnrolError::Proof(_))), "{other:?}");
            }
        }
        assert!(
            accounts
                .meet("ours", IpAddr::from([10, 0, 1, 1]))
                .await
                .is_err_and(|it| matches!(it, EnrolError::Proof(_)))
        );
    }
}
