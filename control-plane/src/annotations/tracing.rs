//! Tracing: backends get the span that a request belongs to in a header, and attach their own spans to it. The proxy
//! records no spans.

use shared::policy::Sampler;

use super::row::{Bad, Effect, Risk, Row, Spec};
use super::value::{BOOL, Grammar, one_of};

/// `enable-opentelemetry`.
pub(crate) static ENABLE_OPENTELEMETRY: Row = Row {
    name: "enable-opentelemetry",
    value: &Spec(
        BOOL,
        Effect::Partly {
            sets: |to, it| to.location.enable_opentelemetry = Some(it),
            unless: |it| !*it,
            without: "backends are told the trace (traceparent), and no span of ours is recorded",
        },
    ),
    default: "false",
    doc: "A span for each request",
    ..Row::NEW
};

/// `opentelemetry-operation-name`.
pub(crate) static OPENTELEMETRY_OPERATION_NAME: Row = Row {
    name: "opentelemetry-operation-name",
    risk: Risk::Medium,
    value: &Spec(NAME, Effect::Differs { unless: |_| false, without: "" }),
    bad: Bad::Reject,
    needs: Some("enable-opentelemetry"),
    doc: "Name of the span",
    ..Row::NEW
};

/// `opentelemetry-trust-incoming-span`.
pub(crate) static OPENTELEMETRY_TRUST_INCOMING_SPAN: Row = Row {
    name: "opentelemetry-trust-incoming-span",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.opentelemetry_trust_incoming_span = Some(it))),
    needs: Some("enable-opentelemetry"),
    default: "true",
    doc: "The client's trace is continued",
    ..Row::NEW
};

/// `otel-sampler`.
pub(crate) static OTEL_SAMPLER: Row = Row {
    name: "otel-sampler",
    value: &Spec(
        one_of!("AlwaysOn" | "AlwaysOff" | "TraceIdRatioBased"),
        Effect::Sets(|to, it| {
            let sampler = match it {
                "AlwaysOff" => Sampler::Off,
                "TraceIdRatioBased" => Sampler::Ratio,
                _ => Sampler::On,
            };
            to.location.otel_sampler = Some(sampler.into());
        }),
    ),
    default: "AlwaysOn",
    doc: "Which traces that begin here backends are told to record",
    ..Row::NEW
};

/// `otel-sampler-parent-based`.
pub(crate) static OTEL_SAMPLER_PARENT_BASED: Row = Row {
    name: "otel-sampler-parent-based",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.otel_sampler_parent_based = Some(it))),
    default: "true",
    doc: "Of a trace that is continued the client has decided that",
    ..Row::NEW
};

/// `otel-sampler-ratio`.
pub(crate) static OTEL_SAMPLER_RATIO: Row = Row {
    name: "otel-sampler-ratio",
    value: &Spec(RATIO, Effect::Sets(|to, it| to.location.otel_sampler_ratio = Some(it))),
    default: "0.01",
    doc: "Share of them with TraceIdRatioBased",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] =
    &[&ENABLE_OPENTELEMETRY, &OPENTELEMETRY_OPERATION_NAME, &OPENTELEMETRY_TRUST_INCOMING_SPAN];

const NAME: Grammar<String> = Grammar {
    words: "letters, digits, spaces, - and _",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["web_request"],
    bad: &["a;b"],
};

/// A ratio, in millionths.
const RATIO: Grammar<u32> = Grammar {
    words: "a number from 0 to 1",
    read: |text| {
        let share: f64 = text.parse().ok()?;
        (0.0..=1.0).contains(&share).then_some((share * 1e6).round() as u32)
    },
    good: &["0.01", "1", "0"],
    bad: &["1.1", "-0.1", "half", "NaN"],
};
