//! OpenSSL's cipher lists (ciphers(1)), for the TLS 1.2 suites that proxies support.
//!
//! Other ciphers in a list are ignored, as by an OpenSSL that was built without them.

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
    for item in list.split([':', ',', ';', ' ', '\n']).filter(|item| !item.is_empty()) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
