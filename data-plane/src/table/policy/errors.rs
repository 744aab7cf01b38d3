//! Error pages from another backend (`custom-http-errors`, as in ingress-nginx), and fixed answers in place of errors, or
//! what the host serves at a path.

use shared::policy::{ErrorAnswer, ErrorAnswerList, LocationPolicy};

use super::PolicyError;
use super::shortcuts::Shortcut;

/// Which responses are replaced by an error page.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    statuses: Box<[u16]>,
    /// Responses of the backend are replaced, too, and not only the proxy's own pages. Then a 401 of the backend
    /// redirects clients to the sign-in page, if the location has one. Set by the caller that knows the fleet's policy.
    pub intercepts: bool,
    /// The list is the fleet's and the location has none: then the location's own error backend is not used for it.
    /// Set by the caller that knows both.
    pub are_fleets: bool,
    /// Fixed answers in place of errors, in place of all these pages; those of the host, if the location has no pages of its own.
    answers: Option<Box<Answers>>,
}

#[derive(Clone, Debug, Default)]
struct Answers {
    of_location: Box<[Answer]>,
    of_host: Box<[Answer]>,
}

/// An answer in place of a page with this status.
#[derive(Clone, Debug)]
struct Answer {
    error: u16,
    instead: Instead,
}

/// What a client gets in place of an error page.
#[derive(Clone, Debug)]
pub enum Instead {
    /// A fixed answer, of another location.
    Answer(Shortcut),
    /// A redirect, of the request's own location.
    Redirect(Shortcut),
    /// What its host serves at a path.
    Place(Place),
}

/// A path of the same host.
#[derive(Clone, Debug)]
pub struct Place {
    /// Decoded.
    pub path: Box<[u8]>,
    /// Empty: none.
    pub query: Box<[u8]>,
    /// The status of the response; `None`: its own.
    pub status: Option<u16>,
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
        let all = Answers {
            of_location: answers("error_answers", configured.error_answers.as_ref())?,
            of_host: answers("host_error_answers", configured.host_error_answers.as_ref())?,
        };
        let has_answers = !(all.of_location.is_empty() && all.of_host.is_empty());
        let statuses = statuses.map(status).collect::<Result<_, _>>()?;
        Ok(Self { statuses, answers: has_answers.then(|| Box::new(all)), ..Self::default() })
    }

    /// The answer in place of a page with this status. `has_others`: the location has pages of other kinds, and so takes none
    /// of its host. `is_hosts`: the host responds, and not the location.
    pub fn answer(&self, status: u16, has_others: bool, is_hosts: bool) -> Option<&Instead> {
        let found = self.level(has_others, is_hosts)?.iter().find(|it| it.error == status);
        found.map(|it| &it.instead)
    }

    /// Whether there are answers, which stand in place of the fleet's pages.
    pub fn has_answers(&self, has_others: bool, is_hosts: bool) -> bool {
        self.level(has_others, is_hosts).is_some()
    }

    /// nginx takes all error pages from one level: the innermost that has some.
    fn level(&self, has_others: bool, is_hosts: bool) -> Option<&[Answer]> {
        let Answers { of_location, of_host } = self.answers.as_deref()?;
        let inner = Some(&**of_location).filter(|list| !is_hosts && !list.is_empty());
        let outer = Some(&**of_host).filter(|list| !list.is_empty() && (is_hosts || !has_others));
        inner.or(outer)
    }

    /// Whether no page is another backend's.
    pub fn is_empty(&self) -> bool {
        self.statuses.is_empty()
    }

    /// Whether the location lists some itself.
    pub fn are_own(&self) -> bool {
        !self.are_fleets && !self.is_empty()
    }

    /// Whether a response with this status is replaced.
    pub fn takes(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }
}

fn answers(field: &'static str, list: Option<&ErrorAnswerList>) -> Result<Box<[Answer]>, PolicyError> {
    let answers = list.into_iter().flat_map(|list| &list.answers);
    let compiled = answers.map(|it| {
        let error = u16::try_from(it.error).ok().filter(|status| (300..600).contains(status));
        match error.zip(instead(it)?) {
            Some((error, instead)) => Ok(Answer { error, instead }),
            None => Err(PolicyError {
                field,
                problem: format!("expected an error and an answer to it, got {}", it.error),
            }),
        }
    });
    compiled.collect()
}

fn instead(configured: &ErrorAnswer) -> Result<Option<Instead>, PolicyError> {
    let Some(place) = &configured.place else {
        let answer = configured.answer.as_ref().map(Shortcut::compile).transpose()?;
        let is_plain = |it: &Shortcut| it.tests.is_empty() && it.pattern.is_none() && it.status != 0;
        let instead = if configured.in_location { Instead::Redirect } else { Instead::Answer };
        return Ok(answer.filter(is_plain).map(instead));
    };
    let status = match place.status {
        0 => Some(None),
        status => u16::try_from(status).ok().filter(|it| (200..600).contains(it)).map(Some),
    };
    let status = status.filter(|_| place.path.starts_with('/'));
    Ok(status.map(|status| {
        let [path, query] = [&place.path, &place.query].map(|it| it.as_bytes().into());
        Instead::Place(Place { path, query, status })
    }))
}
