//! Flags of cookies: nginx' `proxy_cookie_flags`.

use std::borrow::Cow;

use shared::pattern::Steps;
use shared::policy::{CookieFlags, CookieFlagsList};

use super::{Attribute, From};
use crate::table::policy::PolicyError;

/// Rules, of which the first that fits a cookie counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags(Box<[Rule]>);

/// What becomes of the flags of the cookies with a name.
#[derive(Clone, Debug)]
struct Rule {
    name: From,
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<SameSite>,
}

#[derive(Clone, Copy, Debug)]
enum SameSite {
    Is(&'static str),
    Absent,
}

const SECURE: &str = "Secure";
const HTTP_ONLY: &str = "HttpOnly";
const SAME_SITE: &str = "SameSite";

impl Flags {
    pub(super) fn compile(configured: Option<&CookieFlagsList>) -> Result<Self, PolicyError> {
        let rules = configured.iter().flat_map(|list| &list.rules);
        Ok(Self(rules.map(Rule::compile).collect::<Result<_, _>>()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes the flags of a cookie, whose first attribute is its name. Returns whether anything was changed.
    pub(super) fn apply(&self, cookie: &mut Vec<Attribute<'_>>, steps: &Steps) -> bool {
        let Some(name) = cookie.first().map(|it| it.name) else { return false };
        self.0.iter().find(|rule| rule.fits(name, steps)).is_some_and(|rule| rule.edit(cookie))
    }
}

impl Rule {
    fn compile(configured: &CookieFlags) -> Result<Self, PolicyError> {
        let CookieFlags { cookie, flags } = configured;
        let refused = |problem| PolicyError { field: "proxy_cookie_flags", problem };
        let name = From::parse(cookie).map_err(refused)?;
        let mut rule = Self { name, secure: None, http_only: None, same_site: None };
        for flag in flags {
            match flag.as_str() {
                "secure" => rule.secure = Some(true),
                "nosecure" => rule.secure = Some(false),
                "httponly" => rule.http_only = Some(true),
                "nohttponly" => rule.http_only = Some(false),
                "samesite=strict" => rule.same_site = Some(SameSite::Is("Strict")),
                "samesite=lax" => rule.same_site = Some(SameSite::Is("Lax")),
                "samesite=none" => rule.same_site = Some(SameSite::Is("None")),
                "nosamesite" => rule.same_site = Some(SameSite::Absent),
                other => return Err(refused(format!("expected a flag of cookies, got {other:?}"))),
            }
        }
        Ok(rule)
    }

    fn fits(&self, name: &[u8], steps: &Steps) -> bool {
        match &self.name {
            From::Text(text) => {
                text.as_literal().is_some_and(|text| text.as_bytes().eq_ignore_ascii_case(name))
            }
            From::Pattern(pattern) => pattern.is_match(name, steps).unwrap_or(false),
        }
    }

    fn edit(&self, cookie: &mut Vec<Attribute<'_>>) -> bool {
        let secure = self.secure.is_some_and(|is_on| put(cookie, SECURE, is_on, None));
        let http_only = self.http_only.is_some_and(|is_on| put(cookie, HTTP_ONLY, is_on, None));
        let same_site = self.same_site.is_some_and(|it| match it {
            SameSite::Is(value) => put(cookie, SAME_SITE, true, Some(value)),
            SameSite::Absent => put(cookie, SAME_SITE, false, None),
        });
        secure || http_only || same_site
    }
}

/// Adds an attribute, or removes it. One that is there keeps its place; a value replaces its own.
fn put(
    cookie: &mut Vec<Attribute<'_>>,
    name: &'static str,
    is_on: bool,
    value: Option<&'static str>,
) -> bool {
    let is_it = |it: &Attribute<'_>| it.name.eq_ignore_ascii_case(name.as_bytes());
    let new = value.map(|text| Cow::Borrowed(text.as_bytes()));
    if !is_on {
        let before = cookie.len();
        let mut place = 0;
        cookie.retain(|it| {
            place += 1;
            place == 1 || !is_it(it)
        });
        return cookie.len() < before;
    }
    match cookie.iter_mut().skip(1).find(|it| is_it(it)) {
        Some(_) if new.is_none() => false,
        Some(there) => {
            let changed = there.value != new;
            there.value = new;
            changed
        }
        None => {
            cookie.push(Attribute { name: name.as_bytes(), value: new });
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::ResponseRewrite;
    use super::super::tests::plain;
    use super::*;

    fn rules(rules: &[(&str, &[&str])]) -> LocationPolicy {
        let rule = |(cookie, flags): &(&str, &[&str])| CookieFlags {
            cookie: (*cookie).into(),
            flags: flags.iter().map(ToString::to_string).collect(),
        };
        let rules = rules.iter().map(rule).collect();
        LocationPolicy {
            proxy_cookie_flags: Some(CookieFlagsList { rules, level: None }),
            ..LocationPolicy::default()
        }
    }

    #[test]
    fn the_first_rule_that_fits_changes_flags() {
        let configured = rules(&[
            ("one", &["httponly"]),
            ("~^SESS", &["nosecure", "samesite=lax"]),
            ("~*^track", &["nohttponly", "nosamesite"]),
            ("~", &["secure", "samesite=strict"]),
        ]);
        let rewrite = ResponseRewrite::compile(&configured).unwrap().unwrap();
        assert!(rewrite.has_cookies());
        for (came, goes) in [
            ("ONE=1; Path=/", "ONE=1; Path=/; HttpOnly"),
            ("one=1;httponly", "one=1;httponly"),
            ("SESSION=1; Secure; HttpOnly", "SESSION=1; HttpOnly; SameSite=Lax"),
            ("TRACKER=1; samesite=None;HttpOnly; Max-Age=3", "TRACKER=1; Max-Age=3"),
            ("sess=1; SameSite=None", "sess=1; SameSite=Strict; Secure"),
            ("Secure=1; SECURE;samesite", "Secure=1; SECURE; samesite=Strict"),
            ("no-cookie", "no-cookie"),
        ] {
            let new = rewrite.cookie(came.as_bytes(), &plain(&Steps::new())).unwrap_or_else(|| came.into());
            assert_eq!(String::from_utf8(new).unwrap(), goes, "{came}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for configured in [rules(&[("~(", &[])]), rules(&[("a", &["partitioned"])])] {
            assert_eq!(ResponseRewrite::compile(&configured).unwrap_err().field, "proxy_cookie_flags");
        }
        assert!(ResponseRewrite::compile(&rules(&[])).unwrap().is_none());
    }
}
