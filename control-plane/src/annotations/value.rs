//! The grammars of annotations' values: how ingress-nginx parses their text (its `annotations/parser` package).
//!
//! **Invariant:** a value is parsed once, into a type; its text goes no further. A validator sees the raw value,
//! including line breaks, before anything is trimmed; an empty value never gets here.

use shared::address::AddressSet;
use shared::template::{Template, Variable};

/// How the text of a value is parsed into a `T`.
pub struct Grammar<T: 'static> {
    /// What is expected, such as `a whole number`.
    pub words: &'static str,
    /// Parses a text; `None` if it is invalid.
    pub read: fn(&str) -> Option<T>,
    /// Valid samples.
    pub good: &'static [&'static str],
    /// Invalid samples.
    pub bad: &'static [&'static str],
}

/// Go's `ParseBool`.
pub const BOOL: Grammar<bool> = Grammar {
    words: "true or false",
    read: boolean,
    good: &["true", "false", "T", "0"],
    bad: &["yes", "on", "TRuE", "true "],
};

/// Go's `Atoi`.
pub const INT: Grammar<i64> = Grammar {
    words: "a whole number",
    read: integer,
    good: &["7", "+100", "-1"],
    bad: &["10s", "ten", "10 ", "1.5", "99999999999999999999"],
};

/// A number of seconds. nginx would not start with a negative one.
pub const SECONDS: Grammar<u32> = Grammar {
    words: "a number of seconds without a unit",
    read: |text| u32::try_from(integer(text)?).ok(),
    good: &["7", "+3600", "0"],
    bad: &["60s", "1m", "-1", "1.5", "4294967296"],
};

/// A size (ingress-nginx' `SizeRegex`), in bytes; spaces around it are ignored.
pub const SIZE: Grammar<u64> = Grammar {
    words: "a size: digits, then nothing, b, k, m or g",
    read: |text| size(trimmed(text)),
    good: &["0", "512", "8k", "10M", "1g", " 8k "],
    bad: &["8kb", "k", "-1", "1.5m", "8 k", "99999999999999999999g"],
};

/// `on` or `off`, in lower case; spaces around it are ignored.
pub const SWITCH: Grammar<bool> = Grammar {
    words: "on or off",
    read: |text| match trimmed(text) {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    },
    good: &["on", "off", "off "],
    bad: &["true", "On", "o ff"],
};

/// Any text. It is never used as text.
pub const ANY: Grammar<String> =
    Grammar { words: "text", read: |text| Some(text.to_owned()), good: &["x"], bad: &[] };

/// A comma-separated list of any items; may be empty.
pub const TEXT_LIST: Grammar<Vec<String>> = Grammar {
    words: "a list with commas between its items",
    read: |text| Some(list(text).map(str::to_owned).collect()),
    good: &["/a, /b"],
    bad: &[],
};

/// Basic characters (ingress-nginx' `BasicCharsRegex`), spaces allowed.
pub const BASIC: Grammar<String> = Grammar {
    words: "letters, digits, spaces and / - . _ ~ :",
    read: |text| written(text, |c| c == ' ' || is_basic(c)),
    good: &["default/some-name"],
    bad: &["a;b", "x\ny", "a,b"],
};

/// A URL (ingress-nginx' `URLIsValidRegex`).
pub const URL: Grammar<String> = Grammar {
    words: "a URL of letters, digits and / - . _ ~ : , ? & =",
    read: |text| written(text, is_url),
    good: &["https://x.test/a?b=c"],
    bad: &["https://x.test/{", "a b", "x\ny"],
};

/// A URL (ingress-nginx' `URLIsValidRegex`); spaces are ignored.
pub const URL_SPACED: Grammar<String> = Grammar {
    words: "letters, digits, spaces and / - . _ ~ : , ? & =",
    read: |text| written(text, |c| c == ' ' || is_url(c)),
    good: &["/a", "x.test"],
    bad: &["a;b", "x\ny"],
};

/// A URL with variables (ingress-nginx' `URLWithNginxVariableRegex`); spaces are ignored.
pub const URL_WITH_VARIABLES: Grammar<String> = Grammar {
    words: "a URL of letters, digits, spaces and / - . _ ~ : , ? & = $, with at most 64 variables",
    read: |text| written(text, |c| c == ' ' || c == '$' || is_url(c)).and_then(template),
    good: &["https://auth.test/check?to=$request_uri"],
    bad: &["http://a.test/{x}", "http://a.test/;", "x\ny", TOO_MANY],
};

/// A path with captures (ingress-nginx' `RegexPathWithCapture`), without spaces.
pub const PATH: Grammar<String> = Grammar {
    words: "a path of letters, digits and / - . _ ~ : $, with at most 64 variables",
    read: |text| written(text, |c| c == '$' || is_basic(c)).and_then(template),
    good: &["/$2", "/elsewhere"],
    bad: &["/x?y=1", "/a b", "/(x)", "x\ny", TOO_MANY],
};

/// A path with captures (ingress-nginx' `RegexPathWithCapture`); spaces are ignored.
pub const PATH_SPACED: Grammar<String> = Grammar {
    words: "a path of letters, digits, spaces and / - . _ ~ : $, with at most 64 variables",
    read: |text| written(text, |c| c == ' ' || c == '$' || is_basic(c)).and_then(template),
    good: &["/api", "/$1", "api"],
    bad: &["/x?y=1", "/a,b", "x\ny", TOO_MANY],
};

/// nginx variables (ingress-nginx' `NGINXVariable`); spaces are ignored.
pub const VARIABLES: Grammar<String> = Grammar {
    words: "letters, digits, spaces and - _ $ { }, with at most 64 variables",
    read: |text| {
        written(text, |c| c == ' ' || c.is_ascii_alphanumeric() || "-_${}".contains(c)).and_then(template)
    },
    good: &["$request_uri", "${remote_addr}-x"],
    bad: &["$uri;", "a/b", TOO_MANY],
};

/// Header names (ingress-nginx' `HeadersVariable`), in order.
pub const HEADERS: Grammar<Vec<String>> = Grammar {
    words: "names of headers: letters, digits, - and _, with commas between them",
    read: |text| {
        let names = list(text).map(|name| is_header_name(name).then(|| name.to_owned()));
        names.collect()
    },
    good: &["X-User, X-Groups", "X-User,,X_Groups,"],
    bad: &["X:Y", "a;b", "X-User X-Groups"],
};

/// Whether ingress-nginx takes it for the name of a header.
pub fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Characters of regular expressions (ingress-nginx' `IsValidRegex`): no space, no comma.
pub const PATTERN: Grammar<String> = Grammar {
    words: "letters, digits and / - . _ ~ : ^ $ [ ] ( ) { } * + ? | & = \\",
    read: |text| written(text, is_pattern),
    good: &["^beta|x", "internal.test"],
    bad: &["a b", "a,b", "a;b"],
};

/// The same characters, with variables.
pub const PATTERN_WITH_VARIABLES: Grammar<String> = Grammar {
    words: "letters, digits and / - . _ ~ : ^ $ [ ] ( ) { } * + ? | & = \\, with at most 64 variables",
    read: |text| (PATTERN.read)(text).and_then(template),
    good: &["$host", "internal.test"],
    bad: &["a b", "a,b", "a;b", TOO_MANY],
};

/// Comma-separated CIDRs: every entry has to be valid, and so does what follows the last comma.
pub const CIDRS: Grammar<Vec<String>> = Grammar {
    words: "addresses and networks with commas between them",
    read: |text| {
        let entries = || text.split(',').map(str::trim);
        let set = AddressSet::parse(entries()).ok().filter(|_| entries().all(|entry| !entry.is_empty()));
        set.map(|_| entries().map(str::to_owned).collect())
    },
    good: &["10.0.0.0/8, 192.0.2.1", "2001:db8::/32"],
    bad: &["10.0.0.0/33", "example.com", "10.0.0.0/8;", ","],
};

/// One of a set of words, case-sensitive; spaces around it are ignored, as ingress-nginx' validators do.
macro_rules! one_of {
    ($($word:literal)|+) => {
        $crate::annotations::value::Grammar::<&'static str> {
            words: concat!("one of", $(" ", $word),+),
            read: |text| [$($word),+].into_iter().find(|word| *word == $crate::annotations::value::trimmed(text)),
            good: &[$($word, concat!(" ", $word, " ")),+],
            bad: &["no-such-word"],
        }
    };
}
pub(super) use one_of;

/// Without the spaces around it: ingress-nginx' validators ignore these, and no other white space.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(' ')
}

/// Go's `ParseBool`: only these twelve words.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Go's `Atoi`: an optional sign and decimal digits that fit 64 bits; no spaces, no unit.
pub fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Go's `ParseInt` with base 0: the prefixes `0x`, `0o` and `0b` give the base, a 0 before other digits means octal; an
/// underscore may separate digits.
pub fn integer_of_any_base(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, rest) = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)]
        .into_iter()
        .find_map(|(prefix, base)| Some((base, lower.strip_prefix(prefix).filter(|it| !it.is_empty())?)))
        .unwrap_or((10, &lower));
    // An underscore may also follow the prefix of a base.
    let rest = if base == 10 { rest } else { rest.strip_prefix('_').unwrap_or(rest) };
    let parts: Vec<_> = rest.split('_').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphanumeric());
    parts
        .iter()
        .all(is_number)
        .then(|| i64::from_str_radix(&format!("{sign}{}", parts.concat()), base).ok())?
}

/// A size as [`SIZE`], without spaces around it.
pub(super) fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, unit)) if !unit.is_ascii_digit() => (&text[..at], unit.to_ascii_lowercase()),
        _ => (text, 'b'),
    };
    let unit = match unit {
        'b' => 1,
        'k' => 1 << 10,
        'm' => 1 << 20,
        'g' => 1 << 30,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(unit)).flatten()
}

/// Text of allowed characters. Validated as it is, then trimmed; blank text is invalid.
fn written(text: &str, is_allowed: fn(char) -> bool) -> Option<String> {
    let trimmed = text.trim();
    (text.chars().all(is_allowed) && !trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// Limits the variables of a text: each may expand to as much as a client sends.
fn template(text: String) -> Option<String> {
    Template::parse(&text).is_moderate().then_some(text)
}

/// The first variable of a text that has no value here, such as one that a snippet or a map of an `http-snippet` sets, or a
/// group of a path's pattern.
pub fn unset(text: &str) -> Option<String> {
    unset_but(text, |_| false)
}

/// The same, where some have a value.
pub fn unset_but(text: &str, is_set: impl Fn(&str) -> bool) -> Option<String> {
    Template::parse(text).variables().find_map(|variable| match variable {
        Variable::Named(name) if **name == *"subdomain" || is_set(name) => None,
        Variable::Named(name) => Some(format!("${name}")),
        Variable::Capture(number) => Some(format!("${number}")),
        _ => None,
    })
}

/// 65 variables.
const TOO_MANY: &str = "$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1\
     $1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1";

/// A comma-separated list, items trimmed, empty ones left out.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn is_basic(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-._~:".contains(c)
}

fn is_url(c: char) -> bool {
    is_basic(c) || ",?&=".contains(c)
}

fn is_pattern(c: char) -> bool {
    is_basic(c) || "^$[](){}*+?|&=\\".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_gos() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "yes", "on", "True ", "tRUE", "true\n"] {
            assert_eq!(boolean(text), None, "{text:?}");
        }
    }

    #[test]
    fn integers_are_gos() {
        assert_eq!(integer("50"), Some(50));
        assert_eq!(integer("+7"), Some(7));
        assert_eq!(integer("-7"), Some(-7));
        for text in ["", "30s", " 1", "1 ", "50%", "1.0", "99999999999999999999", "1_0", "0x10"] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn integers_may_say_their_base() {
        for (text, number) in [
            ("50", 50),
            ("0", 0),
            ("+7", 7),
            ("-0x1F", -31),
            ("0X_1f", 31),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("0_17", 15),
            ("1_000", 1000),
        ] {
            assert_eq!(integer_of_any_base(text), Some(number), "{text}");
        }
        for text in ["", "-", "0x", "08", "1__0", "_1", "1_", "0x+1", "ff", "1.0", "99999999999999999999"] {
            assert_eq!(integer_of_any_base(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_have_one_letter() {
        for (text, bytes) in
            [("0", 0), ("8k", 8192), ("8K", 8192), ("1m", 1 << 20), ("2G", 2 << 30), ("7b", 7)]
        {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "8kb", "8 k", " 8k", "1.5m", "-1", "+1", "8é", "18446744073709551615k"] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn text_is_validated_raw_and_then_trimmed() {
        assert_eq!((BASIC.read)("  X-Canary "), Some("X-Canary".into()));
        assert_eq!((BASIC.read)("do it"), Some("do it".into()));
        for text in ["   ", "a\n", "a\r", "a\tb", "\u{a0}a", "a;b", "ä"] {
            assert_eq!((BASIC.read)(text), None, "{text:?}");
        }
        assert_eq!((PATH.read)("/a "), None, "spaces are not taken out of paths");
    }
}
