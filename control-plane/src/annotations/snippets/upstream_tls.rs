//! TLS towards backends in a snippet: nginx' `proxy_ssl_name`, `proxy_ssl_server_name` and `proxy_ssl_protocols`.
//!
//! **Invariant:** they are taken all together or not at all. Beside a Secret, only a name that no annotation says: each
//! other setting of the Secret stands in the location already, and nginx refuses a second one.

use rustls_pki_types::ServerName;
use shared::policy::BackendTls;

use super::headers::SnippetContext;
use super::tokens::{Directive, switch};
use crate::annotations::draft::Draft;
use crate::annotations::upstream_tls::PROTOCOLS_OF_TLS;

/// The variable that a name may be: of a host that has one name, it is that.
pub(crate) const OF_HOST: &str = "$host";

const DIRECTIVES: [&str; 3] = ["proxy_ssl_name", "proxy_ssl_protocols", "proxy_ssl_server_name"];

/// Takes the settings out of a snippet, if they can be expressed.
pub(super) fn take(
    directives: &mut Vec<Directive>,
    place: SnippetContext,
    to: &Draft<'_>,
) -> Option<BackendTls> {
    let tls = read(directives.iter().filter(|it| is_one(it)))?;
    let has_secret = to.text("proxy-ssl-secret").is_some();
    if tls.name == OF_HOST && (has_secret || place == SnippetContext::Server) {
        return None;
    }
    if has_secret {
        let is_name = directives.iter().filter(|it| is_one(it)).all(|it| it.name() == "proxy_ssl_name");
        if !is_name || place == SnippetContext::Server || to.text("proxy-ssl-name").is_some() {
            return None;
        }
    }
    directives.retain(|it| !is_one(it));
    (tls != BackendTls::default()).then_some(tls)
}

fn read<'a>(directives: impl Iterator<Item = &'a Directive>) -> Option<BackendTls> {
    let mut tls = BackendTls::default();
    let mut said = Vec::new();
    for it in directives {
        // nginx rejects a second one.
        if said.contains(&it.name()) {
            return None;
        }
        said.push(it.name());
        match (it.name(), it.arguments()) {
            ("proxy_ssl_name", [name]) => {
                if name != OF_HOST {
                    _ = ServerName::try_from(name.as_str()).ok()?;
                }
                tls.name.clone_from(name);
            }
            ("proxy_ssl_server_name", [word]) => tls.tells_name = switch(word)?,
            ("proxy_ssl_protocols", words) => tls.versions = (PROTOCOLS_OF_TLS.read)(&words.join(" "))?.known,
            _ => return None,
        }
    }
    Some(tls)
}

fn is_one(directive: &Directive) -> bool {
    directive.depth == 0 && !directive.is_block && DIRECTIVES.contains(&directive.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn tls(text: &str) -> Option<BackendTls> {
        read(tokens::directives(text).unwrap().iter())
    }

    #[test]
    fn they_are_read_as_nginx_reads_them() {
        for (text, name, tells_name, versions) in [
            ("proxy_ssl_name b.test; proxy_ssl_server_name on;", "b.test", true, vec![]),
            ("proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.2 TLSv1.3;", "", true, vec![12, 13]),
            ("proxy_ssl_name 10.0.0.1; proxy_ssl_server_name off;", "10.0.0.1", false, vec![]),
            ("proxy_ssl_protocols TLSv1.1 TLSv1.2;", "", false, vec![12]),
            ("proxy_ssl_server_name on; proxy_ssl_name $host;", "$host", true, vec![]),
        ] {
            let expected = BackendTls { name: name.into(), tells_name, versions, ..BackendTls::default() };
            assert_eq!(tls(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_exactly_is_not_taken() {
        for text in [
            "proxy_ssl_name $http_host;",
            "proxy_ssl_name $host:443;",
            "proxy_ssl_name b.test:443;",
            "proxy_ssl_name b.test c.test;",
            "proxy_ssl_name a.test; proxy_ssl_name b.test;",
            "proxy_ssl_server_name yes;",
            "proxy_ssl_protocols TLSv1;",
            "proxy_ssl_protocols;",
        ] {
            assert_eq!(tls(text), None, "{text}");
        }
    }
}
