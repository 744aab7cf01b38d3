//! How ingress-nginx reads the text of an annotation (annotations.md 1.2, 1.3).
//!
//! **Invariant:** a value is read once, into a type; its text goes no further.

/// Go's `ParseBool`: nothing but these twelve words.
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

/// A string: every line trimmed, then joined again. `None` where nothing is left ("invalid content").
pub fn string(text: &str) -> Option<String> {
    let joined = text.split('\n').map(str::trim).collect::<Vec<_>>().join("\n");
    (!joined.is_empty()).then_some(joined)
}

/// A comma-separated list, items trimmed, empty ones left out.
pub fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// The set BASIC of annotations.md 1.3, for which spaces are taken out first.
pub fn is_basic(text: &str) -> bool {
    text.chars().all(|c| c == ' ' || c.is_ascii_alphanumeric() || "/-._~:".contains(c))
}

/// The set REGEXCHARS of annotations.md 1.3: no space, no comma.
pub fn is_pattern(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~:^$[](){}*+?|&=\\".contains(c))
}

/// An allow list that lets everybody in: all of IPv4 and all of IPv6. cert-manager's solver sends it.
pub fn allows_everybody(text: &str) -> bool {
    let has = |wanted: &str| list(text).any(|item| item == wanted);
    has("0.0.0.0/0") && has("::/0")
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
        for text in ["", "30s", " 1", "1 ", "50%", "1.0", "99999999999999999999"] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn strings_are_trimmed_line_by_line() {
        assert_eq!(string("  X-Canary "), Some("X-Canary".into()));
        assert_eq!(string(" a \n b "), Some("a\nb".into()));
        assert_eq!(string("   "), None);
    }

    #[test]
    fn only_both_families_are_everybody() {
        assert!(allows_everybody("0.0.0.0/0,::/0"));
        assert!(allows_everybody("10.0.0.0/8, ::/0, 0.0.0.0/0"));
        assert!(!allows_everybody("0.0.0.0/0"));
        assert!(!allows_everybody(""));
    }
}
