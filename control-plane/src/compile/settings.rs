//! The fleet's settings, out of its ConfigMap.

pub mod table;

use shared::name::ObjectName;
use shared::resource::{Guard, Settings};

use self::table::Status;
use crate::annotations::value;
use crate::objects::ConfigMap;
use crate::problem::{Fault, Severity};

/// The settings of the fleet and what is wrong with its ConfigMap. A missing ConfigMap is all defaults.
///
/// A value that is not understood leaves that key's default, the others count (configmap.md 0).
pub fn compile(
    configmap: Option<&ConfigMap>,
    default_certificate: Option<&ObjectName>,
) -> (Settings, Vec<Fault>) {
    let mut settings = Settings {
        default_certificate: default_certificate.map(ToString::to_string).unwrap_or_default(),
        ..Settings::default()
    };
    let mut faults = Vec::new();
    for (key, text) in configmap.iter().flat_map(|map| &map.data) {
        let mut fault = |severity, reason: String| {
            faults.push(Fault::new(severity, format!("data[{key}]"), reason));
        };
        match Status::of(key) {
            None => fault(Severity::Warning, "unknown key, it has no effect".into()),
            Some(Status::Honoured) => {
                let said = value::boolean(text.trim());
                if said.is_none() {
                    fault(Severity::Warning, format!("expected true or false, got {text:?}: not used"));
                } else if key.eq_ignore_ascii_case("ssl-redirect") {
                    settings.ssl_redirect = said;
                } else {
                    settings.force_ssl_redirect = said;
                }
            }
            Some(Status::Guards(guard)) if guards(key, text) => {
                settings.guards.push(guard);
                let what = match guard {
                    Guard::GlobalAuth => "all paths without enable-global-auth: \"false\" answer 503",
                    Guard::Addresses => "all paths answer 503",
                };
                fault(Severity::Unsupported, format!("not enforced yet: until it is, {what}"));
            }
            Some(Status::Guards(_)) => {}
            Some(_) if text.trim().is_empty() => {}
            Some(Status::Unsupported) => fault(Severity::Unsupported, "not honoured yet".into()),
            Some(Status::Snippet) => {
                fault(Severity::Unsupported, "raw nginx configuration is never honoured".into())
            }
            Some(Status::Nginx) => {
                fault(Severity::Unsupported, "tunes nginx itself and means nothing here".into())
            }
            Some(Status::Dead) => {
                fault(Severity::Warning, "has no effect, in ingress-nginx neither: remove it".into())
            }
        }
    }
    settings.guards.sort_unstable();
    settings.guards.dedup();
    (settings, faults)
}

/// Whether a restricting key keeps anybody out.
fn guards(key: &str, text: &str) -> bool {
    let allows = key.eq_ignore_ascii_case("whitelist-source-range") && value::allows_everybody(text);
    value::list(text).next().is_some() && !allows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(data: &[(&str, &str)]) -> (Settings, Vec<Fault>) {
        let configmap = ConfigMap {
            data: data.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect(),
            ..ConfigMap::default()
        };
        compile(Some(&configmap), None)
    }

    #[test]
    fn no_configmap_is_all_defaults() {
        let name = ObjectName::new("certs", "default");
        let (settings, faults) = compile(None, Some(&name));
        assert_eq!(settings.default_certificate, "certs/default");
        assert_eq!(settings, Settings { default_certificate: "certs/default".into(), ..Settings::default() });
        assert_eq!(faults, []);
    }

    #[test]
    fn redirects_are_honoured_in_any_case_of_the_key() {
        let (settings, faults) = compiled(&[("SSL-Redirect", "false"), ("force-ssl-redirect", "perhaps")]);
        assert_eq!(settings.ssl_redirect, Some(false));
        assert_eq!(settings.force_ssl_redirect, None);
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn restrictions_guard() {
        let (settings, faults) = compiled(&[
            ("block-cidrs", "10.0.0.0/8"),
            ("denylist-source-range", "10.0.0.0/8"),
            ("global-auth-url", "https://auth.test"),
        ]);
        assert_eq!(settings.guards, [Guard::GlobalAuth, Guard::Addresses]);
        assert!(faults.iter().all(|fault| fault.severity == Severity::Unsupported));
        let (settings, faults) = compiled(&[
            ("block-cidrs", ""),
            ("whitelist-source-range", "0.0.0.0/0, ::/0"),
            ("global-auth-url", " "),
        ]);
        assert_eq!((settings, faults), (Settings::default(), Vec::new()));
    }

    #[test]
    fn every_other_key_is_reported() {
        let (settings, faults) = compiled(&[
            ("http-snippet", "x"),
            ("jaeger-endpoint", "x"),
            ("nonsense", "x"),
            ("proxy-body-size", "8m"),
            ("worker-processes", "4"),
        ]);
        assert_eq!(settings, Settings::default());
        use Severity::{Unsupported, Warning};
        let severities: Vec<_> = faults.iter().map(|fault| fault.severity).collect();
        assert_eq!(severities, [Unsupported, Warning, Warning, Unsupported, Unsupported]);
    }
}
