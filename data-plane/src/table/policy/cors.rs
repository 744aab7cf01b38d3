//! CORS settings (as in ingress-nginx).

use bytes::Bytes;
use shared::policy::LocationPolicy;

/// What scripts of other origins may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cors {
    origins: Origins,
    /// Access-Control-Allow-Methods.
    pub methods: Bytes,
    /// Access-Control-Allow-Headers.
    pub headers: Bytes,
    /// Access-Control-Expose-Headers, if configured.
    pub exposed: Option<Bytes>,
    /// Whether Access-Control-Allow-Credentials is sent.
    pub credentials: bool,
    /// Access-Control-Max-Age.
    pub max_age: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Origins {
    Any,
    These(Box<[Origin]>),
}

/// An allowed origin, in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Exact(Box<[u8]>),
    /// With one label between the two parts.
    Wildcard {
        /// `scheme://`
        scheme: Box<[u8]>,
        /// `.host[:port]`
        rest: Box<[u8]>,
    },
}

impl Cors {
    pub(super) fn compile(configured: &LocationPolicy) -> Option<Box<Self>> {
        if configured.enable_cors != Some(true) {
            return None;
        }
        let text = |configured: &Option<String>, usual: &'static str| match configured {
            Some(text) => Bytes::copy_from_slice(text.as_bytes()),
            None => Bytes::from_static(usual.as_bytes()),
        };
        let origins = match &configured.cors_allow_origin {
            None => Origins::Any,
            Some(list) if list.values.iter().any(|it| it == "*") => Origins::Any,
            Some(list) => Origins::These(list.values.iter().map(|it| Origin::new(it)).collect()),
        };
        let exposed = configured.cors_expose_headers.as_deref().filter(|names| !names.is_empty());
        Some(Box::new(Self {
            origins,
            methods: text(&configured.cors_allow_methods, "GET, PUT, POST, DELETE, PATCH, OPTIONS"),
            headers: text(
                &configured.cors_allow_headers,
                "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
            ),
            exposed: exposed.map(|names| Bytes::copy_from_slice(names.as_bytes())),
            credentials: configured.cors_allow_credentials.unwrap_or(true),
            max_age: configured.cors_max_age.unwrap_or(1_728_000).to_string().into(),
        }))
    }

    /// Access-Control-Allow-Origin for a request from this origin; `None`: not allowed.
    pub fn allowed(&self, origin: Option<&Bytes>) -> Option<Bytes> {
        match &self.origins {
            Origins::Any => Some(Bytes::from_static(b"*")),
            Origins::These(these) => origin.filter(|origin| these.iter().any(|it| it.is(origin))).cloned(),
        }
    }
}

impl Origin {
    fn new(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.split_once("://*.") {
            None => Self::Exact(text.into_bytes().into()),
            Some((scheme, rest)) => Self::Wildcard {
                scheme: format!("{scheme}://").into_bytes().into(),
                rest: format!(".{rest}").into_bytes().into(),
            },
        }
    }

    /// Compares the whole origin, ignoring case. ingress-nginx ignores any text before the scheme; no browser sends
    /// that.
    fn is(&self, origin: &[u8]) -> bool {
        match self {
            Self::Exact(text) => origin.eq_ignore_ascii_case(text),
            Self::Wildcard { scheme, rest } => {
                let Some(label) = origin.len().checked_sub(scheme.len() + rest.len()) else {
                    return false;
                };
                let (begin, behind) = origin.split_at(scheme.len());
                let (label, end) = behind.split_at(label);
                begin.eq_ignore_ascii_case(scheme)
                    && end.eq_ignore_ascii_case(rest)
                    && !label.is_empty()
                    && label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    fn allowed(list: &[&str], origin: Option<&'static str>) -> Option<String> {
        let values = list.iter().map(|it| (*it).to_owned()).collect();
        let configured = LocationPolicy {
            enable_cors: Some(true),
            cors_allow_origin: Some(TextList { values }),
            ..LocationPolicy::default()
        };
        let origin = origin.map(Bytes::from);
        let value = Cors::compile(&configured).unwrap().allowed(origin.as_ref())?;
        Some(String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn cors_is_off_by_default() {
        assert_eq!(Cors::compile(&LocationPolicy::default()), None);
        let off = LocationPolicy { enable_cors: Some(false), ..LocationPolicy::default() };
        assert_eq!(Cors::compile(&off), None);
        let on = LocationPolicy { enable_cors: Some(true), ..LocationPolicy::default() };
        assert_eq!(Cors::compile(&on).unwrap().allowed(None), Some(Bytes::from_static(b"*")));
    }

    #[test]
    fn a_listed_origin_is_echoed_as_it_came() {
        let list = ["https://a.com", "http://*.b.com:8080", "null", "tauri://localhost:3000"];
        for origin in [
            "https://a.com",
            "HTTPS://A.com",
            "http://x-1.b.com:8080",
            "http://X.B.com:8080",
            "null",
            "tauri://localhost:3000",
        ] {
            assert_eq!(allowed(&list, Some(origin)).as_deref(), Some(origin));
        }
        assert_eq!(allowed(&["https://a.com", "*"], Some("https://z.com")).as_deref(), Some("*"));
    }

    #[test]
    fn similar_origin_is_not_allowed() {
        let list = ["https://a.com", "http://*.b.com:8080"];
        for origin in [
            "",
            "a.com",
            "http://a.com",
            "https://a.com:443",
            "https://a.com.evil.test",
            "https://evil.test/https://a.com",
            "xhttps://a.com",
            "https://a.com ",
            "https://axcom",
            "http://b.com:8080",
            "http://.b.com:8080",
            "http://x.y.b.com:8080",
            "http://x/.b.com:8080",
            "http://x_y.b.com:8080",
            "http://x.b.com",
            "http://b.com:8080.b.com:8080",
            "https://a.com, https://a.com",
            "null",
        ] {
            assert_eq!(allowed(&list, Some(origin)), None, "{origin}");
        }
        assert_eq!(allowed(&list, None), None);
        assert_eq!(allowed(&[], Some("https://a.com")), None);
    }
}
