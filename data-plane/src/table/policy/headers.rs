//! Configured headers, in the form in which they are added to a message.

use bytes::Bytes;
use shared::policy::HeaderList;
use shared::template::Template;

use super::PolicyError;
use crate::codec::guard;

/// A header that replaces all of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// A token.
    pub name: Bytes,
    /// Expanded for each request.
    pub value: Template,
}

/// Compiles a list of headers; `parse` compiles the values.
pub(super) fn compile(
    field: &'static str,
    configured: Option<&HeaderList>,
    parse: fn(&str) -> Template,
) -> Result<Vec<Header>, PolicyError> {
    let headers = configured.into_iter().flat_map(|list| &list.headers);
    headers.map(|it| header(field, &it.name, parse(&it.value))).collect()
}

/// A header with a valid name.
pub(super) fn header(field: &'static str, name: &str, value: Template) -> Result<Header, PolicyError> {
    match guard::is_name(name.as_bytes()) {
        true => Ok(Header { name: Bytes::copy_from_slice(name.as_bytes()), value }),
        false => Err(PolicyError { field, problem: format!("expected the name of a header, got {name:?}") }),
    }
}
