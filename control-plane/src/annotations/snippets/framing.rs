//! How answers of unknown length end: nginx' `chunked_transfer_encoding`.

use super::tokens::{Directive, switch};

/// Takes the directive out of a snippet of a location, if it says one thing.
pub(super) fn take(directives: &mut Vec<Directive>) -> Option<bool> {
    let is_one = |it: &Directive| it.name() == "chunked_transfer_encoding" && it.depth == 0 && !it.is_block;
    let mut said = directives.iter().filter(|it| is_one(it));
    let chunks = match said.next()?.arguments() {
        [word] => switch(word)?,
        _ => return None,
    };
    if said.next().is_some() {
        return None;
    }
    directives.retain(|it| !is_one(it));
    Some(chunks)
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
