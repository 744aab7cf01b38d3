//! Redirects to https (ingress-nginx behaviour, annotations.md 6.3).

use shared::policy::LocationPolicy;

/// Where plain requests are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// To https where the host has TLS.
    pub ssl: bool,
    /// To https in any case.
    pub force_ssl: bool,
}

impl Default for Redirect {
    fn default() -> Self {
        Self { ssl: true, force_ssl: false }
    }
}

impl Redirect {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        let default = Self::default();
        Self {
            ssl: said.ssl_redirect.unwrap_or(default.ssl),
            force_ssl: said.force_ssl_redirect.unwrap_or(default.force_ssl),
        }
    }
}
