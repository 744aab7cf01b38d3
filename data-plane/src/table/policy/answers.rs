//! Headers of answers (ingress-nginx behaviour, controller.md 9, annotations.md 6.13).

use bytes::Bytes;
use shared::policy::{HeaderOperation, LocationPolicy};
use shared::template::{Template, Variable};

use super::Refused;
use super::headers::{self, Header};

/// What is put into answers, and what is taken out of those of backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Strict-Transport-Security of answers over TLS.
    pub hsts: Option<Bytes>,
    /// Names that backends' answers lose.
    pub hidden: Box<[Box<str>]>,
    /// What is said of the server.
    pub server: Server,
    /// What is put in, the later in place of the earlier.
    pub added: Box<[Added]>,
    /// What comes beside what is there, after that.
    pub beside: Box<[Beside]>,
    /// Whether some of that is the location's own: that of its host is not for its own answers then.
    pub adds_own: bool,
    /// Whether the request's id is among that.
    pub tells_id: bool,
    /// Path of health checks of the proxy itself, where somebody says it.
    pub health: Option<Box<str>>,
    /// Media type of answers to them, likewise.
    pub media_type: Option<Bytes>,
}

/// Who says a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The fleet, or the host, of all answers.
    All,
    /// The location, of its own: what answers in its place does not have it.
    Location,
}

/// A header that comes in place of those of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Added {
    /// Name and value.
    pub header: Header,
    /// Who says it.
    pub by: By,
}

/// A header that comes beside those of its name, as nginx' add_header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beside {
    /// Name and value.
    pub header: Header,
    /// Whether it comes on every answer, or on those of success and redirects alone.
    pub always: bool,
    /// Who says it.
    pub by: By,
}

impl Beside {
    /// Whether it comes on an answer of this status (ngx_http_headers_filter).
    pub fn is_on(&self, status: u16) -> bool {
        self.always || matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
    }
}

/// `Server` of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// None.
    Unsaid,
    /// Ours.
    Ours,
    /// The backend's where there is one, else ours.
    Backends,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            hsts: hsts(&LocationPolicy::default()),
            hidden: Box::default(),
            server: Server::Unsaid,
            added: Box::default(),
            beside: Box::default(),
            adds_own: false,
            tells_id: false,
            health: None,
            media_type: None,
        }
    }
}

impl Answers {
    pub(super) fn compile(said: &LocationPolicy) -> Result<Self, Refused> {
        let hidden = said.hide_headers.iter().flat_map(|list| &list.values);
        // The backend's passes only where there is one at all, as in the original.
        let server = match (said.server_tokens, said.allow_backend_server_header) {
            (Some(true), Some(true)) => Server::Backends,
            (Some(true), _) => Server::Ours,
            _ => Server::Unsaid,
        };
        let all = headers::compile("add_headers", said.add_headers.as_ref(), Template::parse)?;
        let mut added: Vec<_> = all.into_iter().map(|header| Added { header, by: By::All }).collect();
        let mut beside = Vec::new();
        for (field, list, by) in [
            ("host_header_changes", &said.host_header_changes, By::All),
            ("header_changes", &said.header_changes, By::Location),
        ] {
            for change in list.iter().flat_map(|list| &list.changes) {
                let header = headers::header(field, &change.name, Template::parse(&change.value))?;
                match change.operation() {
                    HeaderOperation::Add => beside.push(Beside { header, always: false, by }),
                    HeaderOperation::AddAlways => beside.push(Beside { header, always: true, by }),
                    HeaderOperation::Set | HeaderOperation::Unspecified => added.push(Added { header, by }),
                }
            }
        }
        // The location's own are literal, and stand last in nginx' file (annotations.md 6.13).
        let own = headers::compile("custom_headers", said.custom_headers.as_ref(), Template::literal)?;
        added.extend(own.into_iter().map(|header| Added { header, by: By::Location }));
        let all = added.iter().map(|it| &it.header).chain(beside.iter().map(|it| &it.header));
        let tells_id = all.flat_map(|it| it.value.variables()).any(|it| *it == Variable::RequestId);
        Ok(Self {
            hsts: hsts(said),
            hidden: hidden.map(|name| name.as_str().into()).collect(),
            server,
            added: added.into(),
            adds_own: beside.iter().any(|it| it.by == By::Location),
            beside: beside.into(),
            tells_id,
            health: said.health_check_path.as_deref().map(Into::into),
            media_type: said.default_type.as_ref().map(|it| it.clone().into()),
        })
    }
}

fn hsts(said: &LocationPolicy) -> Option<Bytes> {
    if said.hsts == Some(false) {
        return None;
    }
    let mut value = format!("max-age={}", said.hsts_max_age.unwrap_or(31_536_000));
    if said.hsts_include_subdomains != Some(false) {
        value.push_str("; includeSubDomains");
    }
    if said.hsts_preload == Some(true) {
        value.push_str("; preload");
    }
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsts_is_what_is_said_of_it() {
        let said = LocationPolicy::default;
        let value = |said: LocationPolicy| {
            Answers::compile(&said).unwrap().hsts.map(|it| String::from_utf8(it.into()).unwrap())
        };
        assert_eq!(value(said()).as_deref(), Some("max-age=31536000; includeSubDomains"));
        let short = LocationPolicy {
            hsts_max_age: Some(86_400),
            hsts_include_subdomains: Some(false),
            hsts_preload: Some(true),
            ..said()
        };
        assert_eq!(value(short).as_deref(), Some("max-age=86400; preload"));
        assert_eq!(value(LocationPolicy { hsts: Some(false), ..said() }), None);
    }
}
