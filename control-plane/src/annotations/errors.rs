//! Custom error pages.

use shared::policy::StatusList;

use super::Severity;
use super::row::{Bad, Effect, Row, Spec};
use super::value::{self, BOOL, Grammar};

/// The port of a Service that is named without a port: its first.
pub(crate) const FIRST_PORT: &str = "default";

/// `custom-http-errors`.
pub(crate) static CUSTOM_HTTP_ERRORS: Row = Row {
    name: "custom-http-errors",
    value: &Spec(
        STATUSES,
        Effect::Sets(|to, values| {
            match values {
            Some(values) => to.location.custom_http_errors = Some(StatusList { values }),
            None => to.fault(
                Severity::Warning,
                "expected nothing but commas between the statuses, got spaces, or a comma at the end: it has no effect, \
                 as in ingress-nginx",
            ),
        }
        }),
    ),
    bad: Bad::Reject,
    doc: "Statuses for which the default backend answers",
    harmless: true,
    ..Row::NEW
};

/// `custom-http-errors`, the key: numbers that are no status of an error or a redirect are left out, as in
/// ingress-nginx.
pub(crate) static CUSTOM_HTTP_ERRORS_OF_ALL: Row = Row {
    name: "custom-http-errors",
    value: &Spec(
        ANY_STATUSES,
        Effect::Sets(|to, (values, left_out)| {
            to.leave_out("a status from 300 to 599", left_out);
            to.location.custom_http_errors = Some(StatusList { values });
        }),
    ),
    doc: "Statuses for which the default backend answers",
    harmless: true,
    ..Row::NEW
};

/// `disable-proxy-intercept-errors`.
pub(crate) static DISABLE_PROXY_INTERCEPT_ERRORS: Row = Row {
    name: "disable-proxy-intercept-errors",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.disable_proxy_intercept_errors = Some(it))),
    default: "false",
    doc: "Error responses of the backend are passed on despite `custom-http-errors`; as an annotation despite its own list, and not despite that of the ConfigMap",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &CUSTOM_HTTP_ERRORS,
    &Row {
        name: "default-backend",
        value: &Spec(
            SERVICE,
            Effect::Sets(|to, it| {
                to.location.default_backend = Some(format!("{}/{it}/{FIRST_PORT}", to.object.namespace));
            }),
        ),
        bad: Bad::Reject,
        doc: "Service that answers when there are no endpoints, and for `custom-http-errors`",
        ..Row::NEW
    },
    &DISABLE_PROXY_INTERCEPT_ERRORS,
];

/// `None`: ingress-nginx checks the list without its spaces, so that it passes, and then cannot read it with them. What
/// it checks does not need commas.
const STATUSES: Grammar<Option<Vec<u32>>> = Grammar {
    words: "statuses from 400 to 599 with commas between them",
    read: |text| {
        let text = text.trim();
        let plain = text.replace(' ', "");
        let passes = |run: &str| !run.is_empty() && run.as_bytes().chunks(3).all(is_status);
        if !plain.strip_suffix(',').unwrap_or(&plain).split(',').all(passes) {
            return None;
        }
        let numbers: Option<Vec<u32>> = text.split(',').map(|item| item.parse().ok()).collect();
        let Some(statuses) = numbers else { return Some(None) };
        statuses.iter().all(|status| (400..600).contains(status)).then_some(Some(statuses))
    },
    good: &["404,503"],
    bad: &["404,foo", "399", "600", "404,,503", "404503", "40 4503 4"],
};

fn is_status(digits: &[u8]) -> bool {
    matches!(digits, [b'4' | b'5', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit())
}

const ANY_STATUSES: Grammar<(Vec<u32>, Vec<String>)> = Grammar {
    words: "statuses from 300 to 599 with commas between them",
    read: |text| {
        let (mut statuses, mut left_out) = (Vec::new(), Vec::new());
        for item in value::list(text) {
            match item.parse().ok().filter(|status| (300..600).contains(status)) {
                Some(status) => statuses.push(status),
                None => left_out.push(item.to_owned()),
            }
        }
        Some((statuses, left_out))
    },
    good: &["404, 503"],
    bad: &[],
};

/// A name of a Service (RFC 1035).
const SERVICE: Grammar<String> = Grammar {
    words: "the name of a Service of the same namespace",
    read: |text| {
        let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_name = text.len() <= 63
            && text.bytes().all(inside)
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-');
        is_name.then(|| text.to_owned())
    },
    good: &["errors"],
    bad: &["Bad_Name", "ns/name", "1st", "a-"],
};

#[cfg(test)]
mod tests {
    use super::super::tests::location;
    use super::*;

    #[test]
    fn a_service_is_called_by_a_label() {
        let (most, over) = ("a".repeat(63), "a".repeat(64));
        for (text, expected) in [
            ("a", true),
            ("a-1", true),
            (&*most, true),
            (&*over, false),
            ("", false),
            ("1a", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
        ] {
            assert_eq!((SERVICE.read)(text).is_some(), expected, "{text:?}");
        }
    }

    #[test]
    fn statuses_with_spaces_have_no_effect() {
        let configured = |values: &[u32]| Some(StatusList { values: values.to_vec() });
        for (text, statuses, faults) in [
            ("404,503", configured(&[404, 503]), 0),
            (" 404 ", configured(&[404]), 0),
            ("404, 503", None, 1),
            ("404 503", None, 1),
            ("40 4", None, 1),
            ("404,503,", None, 1),
            ("404,foo", None, 1),
        ] {
            let (location, told) = location(&[("custom-http-errors", text)]);
            assert_eq!((location.custom_http_errors, told), (statuses, faults), "{text}");
        }
    }
}
