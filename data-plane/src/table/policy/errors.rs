//! Pages for errors, which another backend makes (ingress-nginx behaviour, annotations.md 6.14).

use shared::policy::LocationPolicy;

use super::Refused;

/// Which answers are replaced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    statuses: Box<[u16]>,
    /// Answers of the backend are passed on all the same.
    pub passes_backends: bool,
    /// Some answers of the backend are replaced, here or all over the fleet: then a 401 of one sends clients to sign in, where
    /// their location has them do so.
    pub intercepts: bool,
    /// The fleet says so, and the location nothing: its own backend for errors is none for these. Who knows both says it.
    pub are_fleets: bool,
}

impl Errors {
    pub(super) fn compile(said: &LocationPolicy) -> Result<Self, Refused> {
        let statuses = said.custom_http_errors.iter().flat_map(|list| &list.values);
        let status = |status: &u32| match u16::try_from(*status) {
            Ok(status) if (300..600).contains(&status) => Ok(status),
            _ => Err(Refused {
                field: "custom_http_errors",
                problem: format!("expected a status from 300 to 599, got {status}"),
            }),
        };
        let passes_backends = said.disable_proxy_intercept_errors == Some(true);
        Ok(Self {
            statuses: statuses.map(status).collect::<Result<_, _>>()?,
            passes_backends,
            intercepts: said.custom_http_errors.is_some() && !passes_backends,
            are_fleets: false,
        })
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.statuses.is_empty()
    }

    /// Whether an answer of this status is replaced.
    pub fn takes(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }
}
