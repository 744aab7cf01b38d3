//! Error pages from another backend (`custom-http-errors`, as in ingress-nginx).

use shared::policy::LocationPolicy;

use super::PolicyError;

/// Which responses are replaced by an error page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    statuses: Box<[u16]>,
    /// Responses of the backend are replaced, too, and not only the proxy's own pages. Then a 401 of the backend
    /// redirects clients to the sign-in page, if the location has one. Set by the caller that knows the fleet's policy.
    pub intercepts: bool,
    /// The list is the fleet's and the location has none: then the location's own error backend is not used for it.
    /// Set by the caller that knows both.
    pub are_fleets: bool,
}

impl Errors {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let statuses = configured.custom_http_errors.iter().flat_map(|list| &list.values);
        let status = |status: &u32| match u16::try_from(*status) {
            Ok(status) if (300..600).contains(&status) => Ok(status),
            _ => Err(PolicyError {
                field: "custom_http_errors",
                problem: format!("expected a status from 300 to 599, got {status}"),
            }),
        };
        Ok(Self { statuses: statuses.map(status).collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.statuses.is_empty()
    }

    /// Whether a response with this status is replaced.
    pub fn takes(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }
}
