//! How fast answers are sent to clients: nginx' `limit_rate` and `limit_rate_after`.

use shared::policy::LocationPolicy;

use super::Draft;
use super::tokens::{Directive, take_one};
use crate::annotations::value::size;

/// What a snippet says of it, in kilobytes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Pace {
    rate: Option<u32>,
    after: Option<u32>,
}

impl Pace {
    /// Takes the directives out of a snippet of a location, each if it says one number of kilobytes and no annotation says
    /// another: nginx refuses the second one.
    pub(super) fn take(directives: &mut Vec<Directive>, to: &Draft<'_>) -> Self {
        let mut take = |name: &str| match to.text(&name.replace('_', "-")) {
            None => take_one(directives, name, kilobytes),
            Some(_) => None,
        };
        Self { rate: take("limit_rate"), after: take("limit_rate_after") }
    }

    /// Sets the fields of a location.
    pub(super) fn put(self, policy: &mut LocationPolicy) {
        policy.limit_rate = self.rate.or(policy.limit_rate);
        policy.limit_rate_after = self.after.or(policy.limit_rate_after);
    }
}

/// The size as nginx reads it, if it is a whole number of kilobytes.
fn kilobytes(word: &str) -> Option<u32> {
    // nginx knows fewer units than ingress-nginx.
    let bytes = size(word).filter(|_| !word.ends_with(['b', 'B', 'g', 'G']))?;
    u32::try_from(bytes >> 10).ok().filter(|_| bytes.is_multiple_of(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_whole_kilobytes() {
        for (word, expected) in [
            ("100k", Some(100)),
            ("5K", Some(5)),
            ("2m", Some(2048)),
            ("1M", Some(1024)),
            ("51200", Some(50)),
            ("0", Some(0)),
            ("1000", None),
            ("1g", None),
            ("k", None),
            ("+1k", None),
            ("$rate", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(kilobytes(word), expected, "{word}");
        }
    }
}
