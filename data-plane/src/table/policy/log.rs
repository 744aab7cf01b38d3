//! Which requests are logged (ingress-nginx behaviour).

use std::sync::Arc;

use shared::log_format::{Escape, LogFormat, STREAM};
use shared::policy::LocationPolicy;

use super::PolicyError;
use super::texts::Texts;
use crate::access_log::Format;

/// The logging settings.
#[derive(Clone, Debug)]
pub struct Logging {
    /// Whether requests are logged.
    pub is_on: bool,
    default_backend: bool,
    /// Targets that are not logged.
    skipped: Texts,
    /// The log format, if not ingress-nginx' default; only in the fleet's policy.
    pub format: Option<Arc<Format>>,
}

impl Default for Logging {
    fn default() -> Self {
        Self { is_on: true, default_backend: false, skipped: Texts::default(), format: None }
    }
}

impl Logging {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        // Only in the fleet's policy; compiled together with the services.
        if configured.log_format_stream.is_some() {
            streams(configured)?;
        }
        Ok(Self {
            is_on: configured.enable_access_log != Some(false)
                && configured.disable_access_log != Some(true)
                && configured.disable_http_access_log != Some(true),
            default_backend: configured.enable_access_log_for_default_backend == Some(true),
            skipped: Texts::compile("skip_access_log_urls", configured.skip_access_log_urls.as_ref())?,
            format: format(configured)?,
        })
    }

    /// Whether a request of a location is logged. `target`: the original path and query.
    pub fn takes(&self, target: &[u8]) -> bool {
        // If that cannot be determined in time it is logged, so that nobody can hide by an expensive target.
        self.is_on && (self.skipped.is_empty() || self.skipped.have(target) != Some(true))
    }

    /// The same for a request that no location of the catch-all host takes.
    pub fn takes_unclaimed(&self, target: &[u8]) -> bool {
        self.default_backend && self.takes(target)
    }
}

fn format(configured: &LocationPolicy) -> Result<Option<Arc<Format>>, PolicyError> {
    let escape = match (configured.log_format_escape_none, configured.log_format_escape_json) {
        (Some(true), _) => Escape::None,
        (_, Some(true)) => Escape::Json,
        _ => Escape::Default,
    };
    if configured.log_format_upstream.is_none() && escape == Escape::Default {
        return Ok(None);
    }
    let format = configured.log_format_upstream.as_deref().map(LogFormat::parse).transpose();
    let format = format
        .map_err(|error| PolicyError { field: "log_format_upstream", problem: error.to_string() })?
        .unwrap_or_default();
    Ok(Some(Arc::new(Format::new(&format, escape))))
}

/// The log format of TCP and UDP sessions; `None`: not logged.
pub(in crate::table) fn streams(configured: &LocationPolicy) -> Result<Option<Arc<Format>>, PolicyError> {
    if configured.disable_access_log == Some(true) || configured.disable_stream_access_log == Some(true) {
        return Ok(None);
    }
    let text = configured.log_format_stream.as_deref().unwrap_or(STREAM);
    let format = LogFormat::parse_stream(text);
    let format =
        format.map_err(|error| PolicyError { field: "log_format_stream", problem: error.to_string() })?;
    // As in ingress-nginx, the HTTP escaping settings do not apply here.
    Ok(Some(Arc::new(Format::new(&format, Escape::Default))))
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    #[test]
    fn access_log_settings_decide_what_is_logged() {
        let configured = LocationPolicy::default;
        let logs = |configured: LocationPolicy| {
            let logging = Logging::compile(&configured).unwrap();
            (logging.takes(b"/a?b"), logging.takes_unclaimed(b"/a?b"))
        };
        let skipped = |url: &str| Some(TextList { values: vec![url.to_owned()] });
        assert_eq!(logs(configured()), (true, false));
        let off = LocationPolicy { enable_access_log: Some(false), ..configured() };
        assert_eq!(logs(off), (false, false));
        let all = LocationPolicy { enable_access_log_for_default_backend: Some(true), ..configured() };
        assert_eq!(logs(all.clone()), (true, true));
        let none =
            LocationPolicy { disable_access_log: Some(true), enable_access_log: Some(true), ..all.clone() };
        assert_eq!(logs(none), (false, false));
        let http = LocationPolicy { disable_http_access_log: Some(true), ..all.clone() };
        assert_eq!(logs(http), (false, false));
        assert_eq!(
            logs(LocationPolicy { skip_access_log_urls: skipped("/a?b"), ..all.clone() }),
            (false, false)
        );
        for (url, is_logged) in
            [("/a", true), ("/A?B", false), ("~^/a", false), ("~^/A", true), ("~*^/A", false)]
        {
            let configured = LocationPolicy { skip_access_log_urls: skipped(url), ..all.clone() };
            assert_eq!(logs(configured), (is_logged, is_logged), "{url}");
        }
    }
}
