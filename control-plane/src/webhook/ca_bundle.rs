//! Makes API servers trust the webhook's certificate, if that is from the planes' own authority: it keeps the `caBundle` up to date.
//!
//! **Invariant:** a foreign change of the configuration, such as a repeated `helm install`, is corrected within a minute. All replicas
//! write the same roots, those of one record.

use std::convert::Infallible;
use std::time::Duration;

use shared::clock;
use shared::telemetry::Seldom;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::enrol::keeper::Standing;
use crate::kube::bundle::Bundle;

/// Interval at which it is checked.
const LOOK: Duration = Duration::from_secs(60);
/// Retry interval after it could not be read or written.
const RETRY: Duration = Duration::from_secs(5);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(60);

/// Maintains the configuration's `caBundle`, forever.
///
/// # Errors
/// Never; the signature fits the supervisor of tasks.
pub async fn keep(bundle: Bundle, mut authority: watch::Receiver<Standing>) -> Result<(), Infallible> {
    let mut warning = Seldom::new(WARNINGS);
    loop {
        let standing = authority.borrow_and_update().clone();
        let roots = standing.ok().map(|it| it.authority.trusted_pem(clock::wall()));
        let wait = match roots {
            // Without an authority there are no roots to write yet.
            None => LOOK,
            Some(roots) => match bundle.keep(&roots).await {
                Ok(is_new) => {
                    if is_new {
                        let configuration = bundle.name();
                        info!(configuration, "API servers trust the webhook by the roots of the authority");
                    }
                    LOOK
                }
                Err(error) => {
                    if let Some(before) = warning.now(clock::now()) {
                        let configuration = bundle.name();
                        warn!(
                            configuration,
                            before,
                            "API servers may not trust the webhook: its caBundle cannot be updated: {error}"
                        );
                    }
                    RETRY
                }
            },
        };
        tokio::select! {
            changed = authority.changed() => if changed.is_err() { return std::future::pending().await },
            () = sleep(wait) => {}
        }
    }
}
