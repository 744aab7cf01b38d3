//! Service accounts of a cluster, and the roles that they stand for.
//!
//! **Invariant:** the API server is asked about each token, each time; how many are asked about at once is bounded.

use std::sync::Arc;
use std::time::Duration;

use shared::identity::{Role, fit};
use shared::name::ObjectName;
use tokio::sync::Semaphore;

use super::Refused;
use crate::kube::trust::{Holder, ReviewError, Trust};

/// Tokens that the API server is asked about at once.
const REVIEWS: usize = 16;
/// Whoever comes when there are as many waits for so long.
const TURN: Duration = Duration::from_secs(5);

/// Asks whose a token is. A clone is the same.
#[derive(Clone, Debug)]
pub struct Accounts {
    trust: Trust,
    roles: Arc<[(Role, ObjectName)]>,
    turns: Arc<Semaphore>,
}

impl Accounts {
    /// Accounts with their roles, in the words of the API server.
    pub fn new(trust: Trust, roles: Vec<(Role, ObjectName)>) -> Self {
        Self { trust, roles: roles.into(), turns: Arc::new(Semaphore::new(REVIEWS)) }
    }

    /// The role and the name of whoever has a token.
    ///
    /// # Errors
    /// Where it is nobody's who has a role.
    pub async fn look(&self, token: &str) -> Result<(Role, String), Refused> {
        let turn = tokio::time::timeout(TURN, self.turns.acquire()).await;
        let busy = |_| Refused::Unavailable("too many ask for certificates at once".to_owned());
        let _turn = turn.map_err(busy)?;
        match self.trust.review(token).await {
            Ok(holder) => self.role(&holder),
            Err(error @ ReviewError::Unavailable(_)) => Err(Refused::Unavailable(error.to_string())),
            Err(error) => Err(Refused::Proof(error.to_string())),
        }
    }

    fn role(&self, holder: &Holder) -> Result<(Role, String), Refused> {
        let role = self.roles.iter().find(|(_, account)| *account == holder.account).map(|(role, _)| *role);
        let nobody =
            || Refused::Proof(format!("service account {} has no role here (--account)", holder.account));
        let role = role.ok_or_else(nobody)?;
        // The pods of a proxy share an account, and are told apart.
        Ok((role, fit(holder.pod.as_deref().unwrap_or(&holder.account.name))))
    }
}
