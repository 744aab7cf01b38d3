//! How answers of unknown length end: nginx' `chunked_transfer_encoding`.

use super::tokens::{Directive, switch, take_one};

/// Takes the directive out of a snippet of a location, if it says one thing.
pub(super) fn take(directives: &mut Vec<Directive>) -> Option<bool> {
    take_one(directives, "chunked_transfer_encoding", switch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    #[test]
    fn it_is_on_or_off_once() {
        for (text, expected, left) in [
            ("chunked_transfer_encoding off; etag off;", Some(false), 1),
            ("chunked_transfer_encoding On;", Some(true), 0),
            ("chunked_transfer_encoding no;", None, 1),
            ("chunked_transfer_encoding off; chunked_transfer_encoding on;", None, 2),
            ("if ($arg_a) { chunked_transfer_encoding off; }", None, 2),
        ] {
            let mut directives = tokens::directives(text).unwrap();
            assert_eq!((take(&mut directives), directives.len()), (expected, left), "{text}");
        }
    }
}
