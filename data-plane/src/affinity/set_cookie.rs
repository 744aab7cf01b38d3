//! The `Set-Cookie` header of affinity, with its attributes in ingress-nginx' order.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The cookie's attributes, from annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Name of the cookie.
    pub name: String,
    /// `Path`; `None`: the location's path.
    pub path: Option<String>,
    /// `Domain`.
    pub domain: Option<String>,
    /// Seconds from now until `Expires`; may be negative.
    pub expires: Option<i64>,
    /// `Max-Age`.
    pub max_age: Option<i64>,
    /// `Secure` on every connection; otherwise only over TLS.
    pub secure: bool,
    /// `SameSite`.
    pub same_site: Option<SameSite>,
    /// `SameSite=None` is omitted for clients that misinterpret it.
    pub conditional_none: bool,
}

/// Which cross-site requests carry the cookie (RFC 6265bis 4.1.2.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SameSite {
    None,
    Lax,
    Strict,
}

impl Attributes {
    /// The header value for a token of `key` and `backend_key`.
    ///
    /// `location` is the declared path, `over_tls` refers to the client's own connection, `now` is in seconds since
    /// the epoch.
    pub fn render(
        &self,
        (key, backend_key): (&str, &str),
        location: &str,
        over_tls: bool,
        user_agent: &[u8],
        now: i64,
    ) -> String {
        let mut text = format!("{}={key}|{backend_key}", self.name);
        if let Some(expires) = self.expires {
            let _ = write!(text, "; Expires={}", cookie_date(now.saturating_add(expires)));
        }
        if let Some(max_age) = self.max_age {
            let _ = write!(text, "; Max-Age={max_age}");
        }
        if let Some(domain) = &self.domain {
            let _ = write!(text, "; Domain={domain}");
        }
        let _ = write!(text, "; Path={}", self.path.as_deref().unwrap_or(location));
        if self.secure || over_tls {
            text.push_str("; Secure");
        }
        text.push_str("; HttpOnly");
        match self.same_site {
            Some(SameSite::None) if self.conditional_none && !understands_none(user_agent) => {}
            Some(SameSite::None) => text.push_str("; SameSite=None"),
            Some(SameSite::Lax) => text.push_str("; SameSite=Lax"),
            Some(SameSite::Strict) => text.push_str("; SameSite=Strict"),
            None => {}
        }
        text
    }
}

/// nginx' format of dates in cookies: two-digit years up to 2037.
fn cookie_date(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC);
    let year = if time.year() > 2037 { "%Y" } else { "%y" };
    time.strftime(&format!("%a, %d-%b-{year} %H:%M:%S GMT")).to_string()
}

/// Whether a browser understands `SameSite=None`: Chrome before 70, everything on iOS 12, and Safari on macOS 10.14 do
/// not.
fn understands_none(user_agent: &[u8]) -> bool {
    let agent = String::from_utf8_lossy(user_agent);
    let has = |word| agent.contains(word);
    let old_chrome = has("Chrome/4") || has("Chrome/5") || has("Chrome/6");
    let ios_12 = has("CPU iPhone OS 12") || has("iPad; CPU OS 12");
    let macos_10_14 = has("Macintosh") && has("Intel Mac OS X 10_14") && has("Safari") && !has("Chrome");
    !(old_chrome || ios_12 || macos_10_14)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Attributes {
        Attributes { name: name.into(), ..Attributes::default() }
    }

    fn render(attributes: &Attributes, location: &str, over_tls: bool, agent: &str) -> String {
        attributes.render(("K", "B"), location, over_tls, agent.as_bytes(), 1_700_000_000)
    }

    #[test]
    fn attributes_stand_in_order() {
        let plain = named("INGRESSCOOKIE");
        assert_eq!(render(&plain, "/", false, ""), "INGRESSCOOKIE=K|B; Path=/; HttpOnly");
        assert_eq!(render(&plain, "/app", true, ""), "INGRESSCOOKIE=K|B; Path=/app; Secure; HttpOnly");
        let full = Attributes {
            path: Some("/p".into()),
            domain: Some("a.test".into()),
            expires: Some(3600),
            max_age: Some(-1),
            secure: true,
            same_site: Some(SameSite::Strict),
            ..named("route")
        };
        assert_eq!(
            render(&full, "/", false, ""),
            "route=K|B; Expires=Tue, 14-Nov-23 23:13:20 GMT; Max-Age=-1; Domain=a.test; Path=/p; Secure; HttpOnly; \
             SameSite=Strict"
        );
        let lax = Attributes { same_site: Some(SameSite::Lax), ..plain };
        assert_eq!(render(&lax, "/", false, ""), "INGRESSCOOKIE=K|B; Path=/; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn dates_that_no_calendar_has_do_no_harm() {
        let far = Attributes { expires: Some(i64::MAX), ..named("r") };
        assert_eq!(
            render(&far, "/", false, ""),
            "r=K|B; Expires=Thu, 01-Jan-70 00:00:00 GMT; Path=/; HttpOnly"
        );
        let later = Attributes { expires: Some(500_000_000), ..named("r") };
        assert!(render(&later, "/", false, "").contains("Expires=Sun, 18-Sep-2039"));
        // As nginx: four digits where two would be read as of the last century.
        assert!(cookie_date(2_145_916_799).starts_with("Thu, 31-Dec-37 23:59:59"));
        assert!(cookie_date(2_145_916_800).starts_with("Fri, 01-Jan-2038 00:00:00"));
    }

    #[test]
    fn same_site_none_is_kept_from_those_who_misread_it() {
        let none = Attributes { same_site: Some(SameSite::None), conditional_none: true, ..named("r") };
        let cases = [
            ("Mozilla/5.0 Chrome/51.0.2704.103 Safari/537.36", false),
            ("Mozilla/5.0 Chrome/49.0.2623.112 Safari/537.36", false),
            ("Mozilla/5.0 Chrome/69.0.3497.100 Safari/537.36", false),
            ("Mozilla/5.0 Chrome/71.0.2704.103 Safari/537.36", true),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 12_0 like Mac OS X)", false),
            ("Mozilla/5.0 (iPad; CPU OS 12_0 like Mac OS X)", false),
            ("Mozilla/5.0 (iPad; CPU OS 13_0 like Mac OS X)", true),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 13_0 like Mac OS X)", true),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) Version/12.1.2 Safari/605.1.15", false),
            ("Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10_14) Safari/605.1.15", false),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) Version/1 Chrome/80.0.3987.0 Safari/537.36",
                true,
            ),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_2) Version/13 Safari/605.1.15", true),
            ("", true),
        ];
        for (agent, kept) in cases {
            assert_eq!(render(&none, "/", true, agent).ends_with("; SameSite=None"), kept, "{agent}");
        }
        let always = Attributes { conditional_none: false, ..none };
        assert!(render(&always, "/", true, cases[0].0).ends_with("; SameSite=None"));
    }
}
