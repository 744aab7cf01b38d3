//! Redirects that the proxy itself responds with (as in ingress-nginx).

use shared::policy::LocationPolicy;

use super::PolicyError;
use super::spared::Spared;

/// ingress-nginx' default `http-redirect-code`.
const TO_TLS: u16 = 308;

/// Redirect settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// To https if the host has TLS.
    pub ssl: bool,
    /// To https in any case.
    pub force_ssl: bool,
    /// Status of redirects to https.
    pub to_tls: u16,
    /// Whether redirects to https keep a trailing slash.
    pub preserves_slash: bool,
    /// Redirects within the host omit scheme and host.
    pub relative: bool,
    /// Redirects include the port.
    pub with_port: bool,
    /// A redirect of every request.
    pub elsewhere: Option<Elsewhere>,
    /// Redirect target of requests for "/" of the host.
    pub app_root: Option<Box<str>>,
    /// Locations that are never redirected to https.
    pub plain: Spared,
}

/// The redirect of every request of a location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// 300 to 308.
    pub status: u16,
    /// Sent as it is.
    pub url: Box<str>,
}

impl Default for Redirect {
    fn default() -> Self {
        Self {
            ssl: true,
            force_ssl: false,
            to_tls: TO_TLS,
            preserves_slash: false,
            relative: false,
            with_port: false,
            elsewhere: None,
            app_root: None,
            plain: Spared::default(),
        }
    }
}

impl Redirect {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let default = Self::default();
        let status = |field, configured: Option<u32>, usual: u16| match configured.map(u16::try_from) {
            None => Ok(usual),
            Some(Ok(status)) if (300..=308).contains(&status) => Ok(status),
            Some(_) => {
                let problem =
                    format!("expected a status of a redirect, got {}", configured.unwrap_or_default());
                Err(PolicyError { field, problem })
            }
        };
        let to =
            |url: &Option<String>, status| url.as_deref().map(|url| Elsewhere { status, url: url.into() });
        let permanent = status("permanent_redirect_code", configured.permanent_redirect_code, 301)?;
        let temporal = status("temporal_redirect_code", configured.temporal_redirect_code, 302)?;
        Ok(Self {
            ssl: configured.ssl_redirect.unwrap_or(default.ssl),
            force_ssl: configured.force_ssl_redirect.unwrap_or(default.force_ssl),
            to_tls: status("http_redirect_code", configured.http_redirect_code, default.to_tls)?,
            preserves_slash: configured.preserve_trailing_slash.unwrap_or(default.preserves_slash),
            relative: configured.relative_redirects.unwrap_or(default.relative),
            with_port: configured.use_port_in_redirects.unwrap_or(default.with_port),
            elsewhere: to(&configured.temporal_redirect, temporal)
                .or_else(|| to(&configured.permanent_redirect, permanent)),
            app_root: configured.app_root.as_deref().map(Into::into),
            plain: Spared::compile(configured.no_tls_redirect_locations.as_ref()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temporal_one_comes_first() {
        let configured = LocationPolicy {
            permanent_redirect: Some("https://p.test".into()),
            temporal_redirect: Some("https://t.test".into()),
            temporal_redirect_code: Some(307),
            ..LocationPolicy::default()
        };
        let elsewhere = Redirect::compile(&configured).unwrap().elsewhere.unwrap();
        assert_eq!((elsewhere.status, &*elsewhere.url), (307, "https://t.test"));
    }

    #[test]
    fn a_status_that_is_no_redirect_s_is_refused() {
        for code in [0, 200, 299, 309, 70_000] {
            let configured = LocationPolicy { http_redirect_code: Some(code), ..LocationPolicy::default() };
            assert_eq!(Redirect::compile(&configured).unwrap_err().field, "http_redirect_code");
        }
    }
}
