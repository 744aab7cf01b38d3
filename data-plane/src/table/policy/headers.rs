//! Headers that somebody said, as they are put into a message.

use bytes::Bytes;
use shared::policy::HeaderList;
use shared::template::Template;

use super::Refused;
use crate::codec::guard;

/// A header to put in, in place of all of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// A token.
    pub name: Bytes,
    /// Filled in for each request.
    pub value: Template,
}

/// Those of a list; `parse` makes its values.
pub(super) fn compile(
    field: &'static str,
    said: Option<&HeaderList>,
    parse: fn(&str) -> Template,
) -> Result<Vec<Header>, Refused> {
    let headers = said.into_iter().flat_map(|list| &list.headers);
    headers.map(|it| header(field, &it.name, parse(&it.value))).collect()
}

/// One whose name is a name.
pub(super) fn header(field: &'static str, name: &str, value: Template) -> Result<Header, Refused> {
    match guard::is_name(name.as_bytes()) {
        true => Ok(Header { name: Bytes::copy_from_slice(name.as_bytes()), value }),
        false => Err(Refused { field, problem: format!("expected the name of a header, got {name:?}") }),
    }
}
