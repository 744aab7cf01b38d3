//! Which requests are logged (ingress-nginx behaviour, annotations.md 5.8, configmap.md 1.7).

use std::collections::HashSet;

use foldhash::quality::RandomState;
use shared::policy::LocationPolicy;

/// What is logged.
#[derive(Clone, Debug)]
pub struct Logging {
    is_on: bool,
    default_backend: bool,
    skipped: HashSet<Box<[u8]>, RandomState>,
}

impl Default for Logging {
    fn default() -> Self {
        Self { is_on: true, default_backend: false, skipped: HashSet::default() }
    }
}

impl Logging {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        let skipped = said.skip_access_log_urls.iter().flat_map(|list| &list.values);
        Self {
            is_on: said.enable_access_log != Some(false)
                && said.disable_access_log != Some(true)
                && said.disable_http_access_log != Some(true),
            default_backend: said.enable_access_log_for_default_backend == Some(true),
            skipped: skipped.map(|url| url.as_bytes().into()).collect(),
        }
    }

    /// Whether a request of a location is logged. `target`: path and query as they came.
    pub fn takes(&self, target: &[u8]) -> bool {
        self.is_on && (self.skipped.is_empty() || !self.skipped.contains(target))
    }

    /// Whether one is that nobody takes on the catch-all host.
    pub fn takes_unclaimed(&self, target: &[u8]) -> bool {
        self.default_backend && self.takes(target)
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    #[test]
    fn what_is_logged_is_what_is_said() {
        let said = LocationPolicy::default;
        let logs = |said: LocationPolicy| {
            let logging = Logging::compile(&said);
            (logging.takes(b"/a?b"), logging.takes_unclaimed(b"/a?b"))
        };
        let skipped = |url: &str| Some(TextList { values: vec![url.to_owned()] });
        assert_eq!(logs(said()), (true, false));
        let off = LocationPolicy { enable_access_log: Some(false), ..said() };
        assert_eq!(logs(off), (false, false));
        let all = LocationPolicy { enable_access_log_for_default_backend: Some(true), ..said() };
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
        assert_eq!(logs(LocationPolicy { skip_access_log_urls: skipped("/a"), ..all }), (true, true));
    }
}
