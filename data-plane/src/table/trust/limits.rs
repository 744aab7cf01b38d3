//! Name constraints of an authority (RFC 5280 section 4.2.1.10), applied to a certificate that has only a common name.
//!
//! webpki checks listed names (subjectAltName) against the constraints. For a certificate that lists none, the common
//! name is checked against the same constraints, as in OpenSSL.

use x509_parser::extensions::{GeneralName, GeneralSubtree};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The common names, in lower case, of a certificate without DNS names: those that may be host names. A person's name,
/// which has no dot, is not constrained. Wildcards are included, which OpenSSL forgets.
pub(super) fn common_names(der: &[u8]) -> Vec<String> {
    let lists_names = |it: &X509Certificate<'_>| {
        let listed = it.subject_alternative_name().ok().flatten();
        listed.is_some_and(|it| it.value.general_names.iter().any(|it| matches!(it, GeneralName::DNSName(_))))
    };
    let Some((_, certificate)) = X509Certificate::from_der(der).ok().filter(|(_, it)| !lists_names(it))
    else {
        return Vec::new();
    };
    let names = certificate.subject().iter_common_name().filter_map(|it| it.as_str().ok());
    let is_host = |it: &&str| {
        it.contains('.') && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._*".contains(&it))
    };
    names.filter(is_host).map(str::to_ascii_lowercase).collect()
}

/// Whether an authority may issue certificates for all of these names.
pub(super) fn allow(authority: &[u8], names: &[String]) -> bool {
    let Ok((_, authority)) = X509Certificate::from_der(authority) else { return false };
    let configured = match authority.name_constraints() {
        Ok(None) => return true,
        Ok(Some(configured)) => configured.value,
        Err(_) => return false,
    };
    let (permitted, excluded) =
        (bases(configured.permitted_subtrees.as_deref()), bases(configured.excluded_subtrees.as_deref()));
    let is_within = |name: &String, bases: &[String]| bases.iter().any(|base| is_below(name, base));
    names
        .iter()
        .all(|name| (permitted.is_empty() || is_within(name, &permitted)) && !is_within(name, &excluded))
}

fn bases(trees: Option<&[GeneralSubtree<'_>]>) -> Vec<String> {
    let base = |tree: &GeneralSubtree<'_>| match tree.base {
        GeneralName::DNSName(base) => Some(base.to_ascii_lowercase()),
        _ => None,
    };
    trees.unwrap_or_default().iter().filter_map(base).collect()
}

/// Whether a name is in a subtree. A base that begins with a dot covers only names below it.
fn is_below(name: &str, base: &str) -> bool {
    let front = name.strip_suffix(base);
    front.is_some_and(|front| {
        front.is_empty() || base.is_empty() || base.starts_with('.') || front.ends_with('.')
    })
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_subtree_is_a_name_and_what_lies_below() {
        for (name, base, expected) in [
            ("a.test", "a.test", true),
            ("b.a.test", "a.test", true),
            ("ba.test", "a.test", false),
            ("test", "a.test", false),
            ("b.a.test", ".a.test", true),
            ("a.test", ".a.test", false),
            ("a.test", "", true),
        ] {
            assert_eq!(is_below(name, base), expected, "{name} {base}");
        }
    }
}
