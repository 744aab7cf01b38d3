//! TLS settings towards endpoints, as configured (as in ingress-nginx).

use rustls_pki_types::ServerName;
use shared::policy::BackendTls;

use super::PolicyError;

/// The default server name: nginx' name of all upstreams, which no certificate has.
const NOBODY: &str = "upstream_balancer";

/// TLS 1.2 and 1.3, as numbered in messages.
const VERSIONS: [u32; 2] = [12, 13];

/// The TLS settings of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendTlsConfig {
    /// Key of the Material; empty: there is none.
    pub material: Box<str>,
    /// Maximum number of intermediate certificates; `None`: no verification.
    pub verified: Option<usize>,
    /// The name that the certificate must have.
    pub name: ServerName<'static>,
    /// Whether that name is sent as SNI.
    pub tells_name: bool,
    /// Whether TLS 1.2 is allowed.
    pub tls12: bool,
    /// Whether TLS 1.3 is allowed.
    pub tls13: bool,
    /// Whether the versions are configured explicitly.
    pub says_versions: bool,
    /// TLS 1.2 cipher suites by number; empty: all.
    pub ciphers: Box<[u16]>,
}

impl BackendTlsConfig {
    /// Compiles the settings of a location or host.
    ///
    /// # Errors
    /// They are not supported.
    pub fn compile(configured: Option<&BackendTls>) -> Result<Option<Box<Self>>, PolicyError> {
        let Some(configured) = configured else {
            return Ok(None);
        };
        let refused = |field, problem: String| Err(PolicyError { field, problem });
        let is_bare = configured.material.is_empty();
        if is_bare && configured.verify {
            return refused("backend_tls.material", "expected the key of a Material, got none".into());
        }
        let name = if configured.name.is_empty() { NOBODY } else { &configured.name };
        let Ok(name) = ServerName::try_from(name.to_owned()) else {
            return refused(
                "backend_tls.name",
                format!("expected a name or an address, got {:?}", configured.name),
            );
        };
        if let Some(version) = configured.versions.iter().find(|version| !VERSIONS.contains(version)) {
            return refused("backend_tls.versions", format!("expected 12 or 13, got {version}"));
        }
        let ciphers: Option<_> =
            configured.ciphers.iter().map(|number| u16::try_from(*number).ok()).collect();
        let Some(ciphers) = ciphers else {
            return refused("backend_tls.ciphers", "expected numbers of 16 bits, got a greater one".into());
        };
        let says_versions = !configured.versions.is_empty();
        let depth = usize::try_from(configured.verify_depth.max(1)).unwrap_or(usize::MAX);
        Ok(Some(Box::new(Self {
            material: configured.material.as_str().into(),
            verified: configured.verify.then_some(depth),
            name,
            tells_name: configured.tells_name,
            // ingress-nginx' default if there is a Secret, else nginx'.
            tls12: !says_versions || configured.versions.contains(&12),
            tls13: !says_versions && is_bare || configured.versions.contains(&13),
            says_versions,
            ciphers,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> BackendTls {
        BackendTls { material: "ns/ca/proxy-ssl".into(), ..BackendTls::default() }
    }

    fn compiled(configured: BackendTls) -> Result<BackendTlsConfig, &'static str> {
        BackendTlsConfig::compile(Some(&configured)).map(|it| *it.unwrap()).map_err(|refused| refused.field)
    }

    #[test]
    fn nothing_said_is_nothing_verified_over_tls_1_2() {
        let it = compiled(configured()).unwrap();
        assert_eq!((it.verified, it.tells_name, it.tls12, it.tls13), (None, false, true, false));
        assert_eq!(it.name.to_str(), NOBODY);
        assert_eq!(BackendTlsConfig::compile(None).unwrap(), None);
    }

    #[test]
    fn without_a_material_both_versions_are_usual() {
        let versions = |versions: &[u32]| {
            let it = compiled(BackendTls { versions: versions.to_vec(), ..BackendTls::default() }).unwrap();
            (it.tls12, it.tls13)
        };
        assert_eq!(
            [versions(&[]), versions(&[12]), versions(&[13])],
            [(true, true), (true, false), (false, true)]
        );
    }

    #[test]
    fn a_depth_of_none_is_one() {
        let depth = |verify_depth| {
            compiled(BackendTls { verify: true, verify_depth, ..configured() }).unwrap().verified
        };
        assert_eq!([depth(0), depth(1), depth(2)], [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (it, field) in [
            (BackendTls { verify: true, ..BackendTls::default() }, "backend_tls.material"),
            (BackendTls { name: "a b".into(), ..configured() }, "backend_tls.name"),
            (BackendTls { versions: vec![12, 11], ..configured() }, "backend_tls.versions"),
            (BackendTls { ciphers: vec![0xc02b, 65536], ..configured() }, "backend_tls.ciphers"),
        ] {
            assert_eq!(compiled(it), Err(field));
        }
    }
}
