//! Headers added to and removed from responses (as in ingress-nginx).

use bytes::Bytes;
use shared::policy::{HeaderChangeList, HeaderOperation, LocationPolicy};
use shared::template::{Template, Variable};

use super::PolicyError;
use super::expires::Expires;
use super::headers::{self, Header};

mod own;

pub use own::OwnHeaders;

/// Headers to add to responses, and to remove from those of backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseHeaders {
    /// Strict-Transport-Security for responses over TLS.
    pub hsts: Option<Bytes>,
    /// Header names that are removed from backends' responses.
    pub hidden: Box<[Box<str>]>,
    /// The `Server` header.
    pub server: Server,
    /// Headers to set; later ones override earlier ones.
    pub added: Box<[Added]>,
    /// How long clients may keep responses of the location.
    pub expires: Option<Expires>,
    /// The same of the host, for its other responses.
    pub host_expires: Option<Expires>,
    /// Headers to append afterwards, beside existing ones.
    pub appended: Box<[Appended]>,
    /// Whether the location has its own; then those of its host do not apply to its responses.
    pub location_appends: bool,
    /// Whether one of them contains the request's id.
    pub uses_request_id: bool,
    /// Whether one of them has a group of the pattern of `rewrite-target`.
    pub has_groups: bool,
    /// Path of the proxy's own health checks, if configured.
    pub health: Option<Box<str>>,
    /// Media type of their responses, if configured.
    pub media_type: Option<Bytes>,
}

/// Where a header is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfiguredBy {
    /// By the fleet or the host, for all responses.
    All,
    /// By the location, for its own responses only.
    Location,
}

/// A header that replaces those of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Added {
    /// Name and value.
    pub header: Header,
    /// Where it is configured.
    pub by: ConfiguredBy,
    /// The statuses of the responses in which it is set. None: all.
    pub statuses: Box<[u32]>,
}

impl Added {
    /// Whether it is set in a response with this status.
    pub fn is_on(&self, status: u16) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status.into())
    }
}

/// A header that is added beside those of the same name, as by nginx' `add_header`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Name and value.
    pub header: Header,
    /// Whether it is added to every response, or only to success and redirect responses.
    pub always: bool,
    /// Where it is configured.
    pub by: ConfiguredBy,
}

impl Appended {
    /// Whether it is added to a response with this status.
    pub fn is_on(&self, status: u16) -> bool {
        self.always || is_good(status)
    }
}

/// Whether nginx' headers filter changes a response with this status, unless it always does.
pub fn is_good(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// `Server` of responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// Not sent.
    Omitted,
    /// Our own.
    Ours,
    /// The backend's if there is one, else ours.
    Backends,
}

impl Default for ResponseHeaders {
    fn default() -> Self {
        Self {
            hsts: hsts(&LocationPolicy::default()),
            hidden: Box::default(),
            server: Server::Omitted,
            added: Box::default(),
            expires: None,
            host_expires: None,
            appended: Box::default(),
            location_appends: false,
            uses_request_id: false,
            has_groups: false,
            health: None,
            media_type: None,
        }
    }
}

impl ResponseHeaders {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let hidden = configured.hide_headers.iter().flat_map(|list| &list.values);
        // The backend's value passes only if the header is sent at all, as in ingress-nginx.
        let server = match (configured.server_tokens, configured.allow_backend_server_header) {
            (Some(true), Some(true)) => Server::Backends,
            (Some(true), _) => Server::Ours,
            _ => Server::Omitted,
        };
        let all = headers::compile("add_headers", configured.add_headers.as_ref(), Template::parse)?;
        let of = |by| move |header| Added { header, by, statuses: Box::default() };
        let mut added: Vec<_> = all.into_iter().map(of(ConfiguredBy::All)).collect();
        let mut appended = Vec::new();
        let (mut expires, mut host_expires) = (None, None);
        for (field, list, by) in [
            ("fleet_header_changes", &configured.fleet_header_changes, ConfiguredBy::All),
            ("host_header_changes", &configured.host_header_changes, ConfiguredBy::All),
            ("header_changes", &configured.header_changes, ConfiguredBy::Location),
        ] {
            // nginx takes added headers from one level.
            if by == ConfiguredBy::All && list.as_ref().is_some_and(adds) {
                appended.clear();
            }
            for change in list.iter().flat_map(|list| &list.changes) {
                let header = || headers::header(field, &change.name, Template::parse(&change.value));
                match change.operation() {
                    HeaderOperation::Add => appended.push(Appended { header: header()?, always: false, by }),
                    HeaderOperation::AddAlways => {
                        appended.push(Appended { header: header()?, always: true, by })
                    }
                    HeaderOperation::Set | HeaderOperation::Unspecified => {
                        let statuses = change.statuses.as_slice().into();
                        added.push(Added { header: header()?, by, statuses });
                    }
                    HeaderOperation::Expires => {
                        expires = Expires::compile(field, &change.value)?;
                        if by == ConfiguredBy::All {
                            host_expires = expires;
                        }
                    }
                }
            }
        }
        // The location's own values are literal, and come last in nginx' configuration.
        let own = headers::compile("custom_headers", configured.custom_headers.as_ref(), Template::literal)?;
        added.extend(own.into_iter().map(of(ConfiguredBy::Location)));
        let all = added.iter().map(|it| &it.header).chain(appended.iter().map(|it| &it.header));
        let uses = |is_it: fn(&Variable) -> bool| all.clone().flat_map(|it| it.value.variables()).any(is_it);
        let uses_request_id = uses(|it| *it == Variable::RequestId);
        let has_groups = uses(|it| matches!(it, Variable::Capture(_)));
        Ok(Self {
            hsts: hsts(configured),
            hidden: hidden.map(|name| name.as_str().into()).collect(),
            server,
            added: added.into(),
            expires,
            host_expires,
            location_appends: appended.iter().any(|it| it.by == ConfiguredBy::Location),
            appended: appended.into(),
            uses_request_id,
            has_groups,
            health: configured.health_check_path.as_deref().map(Into::into),
            media_type: configured.default_type.as_ref().map(|it| it.clone().into()),
        })
    }
}

/// Whether headers are added beside those of the same name.
fn adds(list: &HeaderChangeList) -> bool {
    list.changes.iter().any(|it| is_added(it.operation()))
}

fn is_added(operation: HeaderOperation) -> bool {
    matches!(operation, HeaderOperation::Add | HeaderOperation::AddAlways)
}

fn hsts(configured: &LocationPolicy) -> Option<Bytes> {
    if configured.hsts == Some(false) {
        return None;
    }
    let mut value = format!("max-age={}", configured.hsts_max_age.unwrap_or(31_536_000));
    if configured.hsts_include_subdomains != Some(false) {
        value.push_str("; includeSubDomains");
    }
    if configured.hsts_preload == Some(true) {
        value.push_str("; preload");
    }
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsts_is_what_is_said_of_it() {
        let configured = LocationPolicy::default;
        let value = |configured: LocationPolicy| {
            ResponseHeaders::compile(&configured)
                .unwrap()
                .hsts
                .map(|it| String::from_utf8(it.into()).unwrap())
        };
        assert_eq!(value(configured()).as_deref(), Some("max-age=31536000; includeSubDomains"));
        let short = LocationPolicy {
            hsts_max_age: Some(86_400),
            hsts_include_subdomains: Some(false),
            hsts_preload: Some(true),
            ..configured()
        };
        assert_eq!(value(short).as_deref(), Some("max-age=86400; preload"));
        assert_eq!(value(LocationPolicy { hsts: Some(false), ..configured() }), None);
    }
}
