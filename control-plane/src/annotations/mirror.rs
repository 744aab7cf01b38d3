//! Mirroring: copies of requests.

use super::row::{Effect, Risk, Row, Spec};
use super::value::{Grammar, PATTERN_WITH_VARIABLES, SWITCH};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "mirror-host",
        risk: Risk::High,
        value: &Spec(
            PATTERN_WITH_VARIABLES,
            Effect::Sets(|to, it| {
                to.tells_of_variables(&it);
                to.location.mirror_host = Some(it);
            }),
        ),
        needs: Some("mirror-target"),
        doc: "Header `Host` of copies",
        ..Row::NEW
    },
    &Row {
        name: "mirror-request-body",
        value: &Spec(SWITCH, Effect::Sets(|to, it| to.location.mirror_request_body = Some(it))),
        needs: Some("mirror-target"),
        default: "on",
        doc: "Copies have the body",
        ..Row::NEW
    },
    &Row {
        name: "mirror-target",
        risk: Risk::High,
        value: &Spec(
            TARGET,
            Effect::Sets(|to, it| {
                to.tells_of_variables(&it);
                to.location.mirror_target = Some(it);
            }),
        ),
        doc: "URL that gets a copy of each request but those over gRPC; without a path, the request's own counts; at no address of the proxy's own machine or link or of a metadata service, but those of `--auth-networks`",
        ..Row::NEW
    },
];

/// ingress-nginx' `IsValidRegex`, limited to what nginx accepts as a URL.
const TARGET: Grammar<String> = Grammar {
    words: "a URL of http or https, with at most 64 variables",
    read: |text| {
        let is_url = |text: &String| {
            let rest = ["http://", "https://", "$scheme://"].iter().find_map(|it| text.strip_prefix(it));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        };
        (PATTERN_WITH_VARIABLES.read)(text).filter(is_url)
    },
    good: &["https://copy.test$request_uri", "http://10.0.0.1:8080", "$scheme://copy.test/x"],
    bad: &["copy.test", "http:///x", "http://copy.test/a b", "http://copy.test/;", "ftp://copy.test"],
};

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;

    #[test]
    fn a_copy_has_a_target_or_there_is_none() {
        let configured = [
            ("mirror-target", "https://copy.test$request_uri"),
            ("mirror-request-body", "off"),
            ("mirror-host", "shadow.test"),
        ];
        let expected = LocationPolicy {
            mirror_target: Some("https://copy.test$request_uri".into()),
            mirror_request_body: Some(false),
            mirror_host: Some("shadow.test".into()),
            ..LocationPolicy::default()
        };
        assert_eq!(location(&configured), (expected, 0));
        assert_eq!(location(&configured[1..]), (LocationPolicy::default(), 2), "without a target");
        assert_eq!(location(&[("mirror-target", "copy.test")]), (LocationPolicy::default(), 1));
    }
}
