//! How long a proxy waits for more of a request's body: nginx' `client_body_timeout`.

use super::tokens::{Directive, take_one};
use crate::annotations::streams::TIME;

/// Takes the directive out of a snippet, if it says one time; in seconds.
pub(super) fn take(directives: &mut Vec<Directive>) -> Option<u32> {
    let seconds = |time: &str| Some((TIME.read)(time).filter(|_| !time.is_empty())?.div_ceil(1_000));
    take_one(directives, "client_body_timeout", seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    #[test]
    fn it_is_one_time() {
        for (text, expected, left) in [
            ("client_body_timeout \"1200s\"; gzip on;", Some(1_200), 1),
            ("client_body_timeout 90;", Some(90), 0),
            ("client_body_timeout 1h30m;", Some(5_400), 0),
            ("client_body_timeout 1500ms;", Some(2), 0),
            ("client_body_timeout;", None, 1),
            ("client_body_timeout '';", None, 1),
            ("client_body_timeout 1 2;", None, 1),
            ("client_body_timeout $http_x;", None, 1),
            ("client_body_timeout 5; client_body_timeout 6;", None, 2),
            ("if ($arg_a) { client_body_timeout 5; }", None, 2),
        ] {
            let mut directives = tokens::directives(text).unwrap();
            assert_eq!((take(&mut directives), directives.len()), (expected, left), "{text}");
        }
    }
}
