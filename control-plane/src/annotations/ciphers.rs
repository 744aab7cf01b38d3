//! OpenSSL's cipher lists (ciphers(1)), for the TLS 1.2 suites that proxies support.
//!
//! Other ciphers in a list are ignored, as by an OpenSSL that was built without them; those that a list names are
//! reported.

use super::draft::Draft;
use crate::problem::{Severity, shown};

/// A suite of TLS 1.2: its number (RFC 8446 appendix B.4, RFC 5289, RFC 7905), its name, and the keywords that select
/// it.
struct Suite {
    number: u32,
    name: &'static str,
    words: &'static [&'static str],
}

/// The suites, in the order of `DEFAULT`. All have forward secrecy and encrypt with authentication.
const SUITES: [Suite; 6] = [
    Suite {
        number: 0xc02c,
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        words: &["aECDSA", "ECDSA", "AES", "AES256", "AESGCM"],
    },
    Suite {
        number: 0xc030,
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        words: &["aRSA", "AES", "AES256", "AESGCM"],
    },
    Suite { number: 0xcca9, name: "ECDHE-ECDSA-CHACHA20-POLY1305", words: &["aECDSA", "ECDSA", "CHACHA20"] },
    Suite { number: 0xcca8, name: "ECDHE-RSA-CHACHA20-POLY1305", words: &["aRSA", "CHACHA20"] },
    Suite {
        number: 0xc02b,
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        words: &["aECDSA", "ECDSA", "AES", "AES128", "AESGCM"],
    },
    Suite {
        number: 0xc02f,
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        words: &["aRSA", "AES", "AES128", "AESGCM"],
    },
];

/// Keywords that select all of them.
const OF_ALL: [&str; 8] = ["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2"];

impl Suite {
    fn is(&self, word: &str) -> bool {
        self.name == word || self.words.contains(&word) || OF_ALL.contains(&word)
    }
}

/// The numbers of the suites that a list selects, the most preferred one first.
pub(super) fn chosen(list: &str) -> Vec<u32> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut banned: Vec<u32> = Vec::new();
    for item in items(list) {
        if item == "@STRENGTH" {
            chosen.sort_by_key(|suite| suite.words.contains(&"AES128"));
            continue;
        }
        let (sign, words) = match item.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &item[1..]),
            _ => (b' ', item),
        };
        let is_meant = |suite: &&Suite| words.split('+').all(|word| suite.is(word));
        let meant: Vec<&Suite> = SUITES.iter().filter(is_meant).collect();
        let is_in = |list: &[&Suite], suite: &Suite| list.iter().any(|it| it.number == suite.number);
        match sign {
            b'!' | b'-' => {
                chosen.retain(|suite| !is_in(&meant, suite));
                if sign == b'!' {
                    banned.extend(meant.iter().map(|suite| suite.number));
                }
            }
            b'+' => {
                let (last, first): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|it| is_in(&meant, it));
                chosen = first.into_iter().chain(last).collect();
            }
            _ => {
                let new = |suite: &&Suite| !is_in(&chosen, suite) && !banned.contains(&suite.number);
                let new: Vec<_> = meant.into_iter().filter(new).collect();
                chosen.extend(new);
            }
        }
    }
    chosen.into_iter().map(|suite| suite.number).collect()
}

/// Reports the ciphers that a list names and that are not known, which such peers may need.
pub(super) fn report_unknown(to: &mut Draft<'_>, list: &str, peers: &str) {
    let mut unknown = unknown(list);
    let Some(first) = unknown.next() else { return };
    let others = match unknown.count() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let reason = format!(
        "{}{others} are not known here: {peers} that know TLS 1.2 and nothing else of this list cannot be spoken to",
        shown(first)
    );
    to.fault(Severity::Warning, reason);
}

/// The ciphers that a list names and that are not known. Not those that exchange keys by `DHE` and encrypt with
/// authentication: who knows them knows their like with `ECDHE`, and lists that are copied everywhere name both.
fn unknown(list: &str) -> impl Iterator<Item = &str> {
    let names = items(list).filter(|item| item.starts_with(char::is_alphanumeric) && item.contains('-'));
    let modern =
        |name: &str| name.starts_with("DHE-") && (name.contains("-GCM-") || name.contains("-CHACHA20-"));
    names.filter(move |name| !modern(name) && !SUITES.iter().any(|suite| suite.name == *name))
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split([':', ',', ';', ' ', '\n']).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_that_are_named_and_not_known_are_found() {
        for (list, names) in [
            ("DEFAULT:HIGH:!RC4-SHA:-AES256-SHA:@SECLEVEL=0:kRSA:ECDHE+AESGCM", &[][..]),
            ("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-CHACHA20-POLY1305", &[]),
            ("ECDHE-RSA-AES128-SHA256,AES256-SHA HIGH", &["ECDHE-RSA-AES128-SHA256", "AES256-SHA"]),
            ("DHE-RSA-AES128-SHA:TLS_AES_128_GCM_SHA256", &["DHE-RSA-AES128-SHA"]),
        ] {
            assert!(unknown(list).eq(names.iter().copied()), "{list}");
        }
    }

    const ALL: [u32; 6] = [0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc02b, 0xc02f];

    #[test]
    fn lists_are_openssl_s() {
        for (list, suites) in [
            ("DEFAULT", &ALL[..]),
            ("HIGH:!aNULL:!MD5", &ALL),
            ("ECDHE+AESGCM", &[0xc02c, 0xc030, 0xc02b, 0xc02f]),
            ("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384", &[0xc02f, 0xc030]),
            ("ALL:!aECDSA", &[0xc030, 0xcca8, 0xc02f]),
            ("ALL:-AES:AES128+aRSA", &[0xcca9, 0xcca8, 0xc02f]),
            ("!AES:ALL", &[0xcca9, 0xcca8]),
            ("ALL:+AES256", &[0xcca9, 0xcca8, 0xc02b, 0xc02f, 0xc02c, 0xc030]),
            ("AES256-SHA:kRSA:RC4", &[]),
            ("CHACHA20+nothing", &[]),
            ("", &[]),
            (":!:+:-:", &[]),
            ("AES128:ALL:@STRENGTH", &[0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc02b, 0xc02f]),
            ("CHACHA20+aRSA:@SECLEVEL=1", &[0xcca8]),
            ("CHACHA20+aRSA, AES128+aRSA;AES256+aRSA;", &[0xcca8, 0xc02f, 0xc030]),
        ] {
            assert_eq!(chosen(list), suites, "{list}");
        }
    }
}
