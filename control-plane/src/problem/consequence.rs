//! What a problem means for requests, which is what decides which one to look at first.
//!
//! Reasons end with what follows from them, in the words that are listed here.

use super::{Problem, Severity};

/// What a problem means for requests, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Consequence {
    /// This version is not served, or requests get an error: 503, 500, 403, 404.
    Fails,
    /// It is served, and differs from what was asked for.
    Differs,
    /// What was written has no effect, and nothing else is different for it.
    NoEffect,
}

/// Before a status: `answer 503`, `answers 500`, `are answered 403`, `get 404`.
const ANSWERS: &[&str] = &["answer ", "answers ", "answered ", "get "];
/// Without a status.
const UNSERVED: &[&str] = &["not served", "nothing is routed", "takes no requests"];
const NO_EFFECT: &[&str] = &["no effect", "is ignored"];

impl Consequence {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Differs => "differs",
            Self::NoEffect => "no-effect",
        }
    }

    /// Of a problem.
    pub fn of(Problem { severity, reason, .. }: &Problem) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        match severity {
            Severity::Rejected => Self::Fails,
            _ if says_status(reason) || says(UNSERVED) => Self::Fails,
            _ if says(NO_EFFECT) => Self::NoEffect,
            _ => Self::Differs,
        }
    }
}

/// Whether a reason names the status of an error as what requests get.
fn says_status(reason: &str) -> bool {
    let is_error = |after: &str| {
        let digits = after.as_bytes().first_chunk::<3>();
        digits.is_some_and(|it| matches!(it[0], b'4' | b'5') && it.iter().all(u8::is_ascii_digit))
    };
    ANSWERS.iter().any(|word| reason.split(word).skip(1).any(is_error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Fault, Subject};

    fn of(severity: Severity, reason: &str) -> Consequence {
        let Fault { severity, field, reason } = Fault::new(severity, "", reason);
        Consequence::of(&Problem { object: Subject::Pin, field, severity, reason, location: String::new() })
    }

    #[test]
    fn what_fails_is_told_from_what_differs_and_what_has_no_effect() {
        use Consequence::{Differs, Fails, NoEffect};
        use Severity::{Overridden, Rejected, Unsupported, Warning};

        for (severity, reason, expected) in [
            (Rejected, "expected a number, got \"ten\"", Fails),
            (
                Warning,
                "Secret a/b does not exist: until it does, all paths of this Ingress answer 503",
                Fails,
            ),
            (Warning, "Service a/b does not exist: answers 503", Fails),
            (Warning, "Service a/auth has no port 4180; its paths answer 500", Fails),
            (
                Warning,
                "expected namespace/name, got \"x\": all requests of its hosts are answered 403",
                Fails,
            ),
            (Warning, "location /x: nothing in it answers, so its requests get 404", Fails),
            (
                Warning,
                "names class \"x\", but there is no such IngressClass: not served until one exists",
                Fails,
            ),
            (Warning, "expected a path, got none: nothing is routed", Fails),
            (Unsupported, "until then all paths answer 503", Fails),
            (Unsupported, "tunes nginx itself and has no effect here", NoEffect),
            (Warning, "unknown annotation, it has no effect: did you mean proxy-body-size?", NoEffect),
            (Warning, "no certificate covers host a.test: the default certificate is shown", Differs),
            (Overridden, "path / belongs to Ingress a/b, which comes first", Differs),
            (Warning, "answers 10 of 503", Differs),
        ] {
            assert_eq!(of(severity, reason), expected, "{reason}");
        }
    }
}
