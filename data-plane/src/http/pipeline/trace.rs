//! Trace context of a request: `traceparent` and `tracestate` (W3C Trace Context, level 1).

use crate::codec::head::Fields;
use crate::table::policy::tracing::Tracing;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Length of a version 00 traceparent: version, trace, span, flags.
const LENGTH: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;

/// The sampled flag.
const SAMPLED: u8 = 1;

/// The parent span of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parent {
    trace: u128,
    sampled: bool,
}

/// The `traceparent` that a backend was told.
#[derive(Debug)]
pub(super) struct Told(Box<str>);

impl Told {
    pub(super) fn parent(&self) -> &str {
        &self.0
    }

    pub(super) fn trace(&self) -> &str {
        self.part(1)
    }

    pub(super) fn span(&self) -> &str {
        self.part(2)
    }

    fn part(&self, number: usize) -> &str {
        self.0.split('-').nth(number).unwrap_or_default()
    }
}

/// Sets the trace context of a request: the client's with a new span, if that is trusted and valid, else a new trace.
pub(super) fn tell(fields: &mut Fields, tracing: &Tracing) -> Told {
    let parent = fields.joined(PARENT).filter(|_| tracing.trusts).and_then(|text| Parent::read(&text));
    let trace = parent.map_or_else(|| some(|| fastrand::u128(..)), |parent| parent.trace);
    let sampled = match parent {
        Some(parent) if tracing.parent_based => parent.sampled,
        _ => tracing.records((trace >> 64) as u64),
    };
    if parent.is_none() {
        // It belongs to a trace that is not continued.
        fields.remove(STATE);
    }
    let span = some(|| u128::from(fastrand::u64(..)));
    let told = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled));
    fields.set(PARENT, &told);
    Told(told.into())
}

/// A nonzero number, because zero is not a valid id.
fn some(draw: impl Fn() -> u128) -> u128 {
    loop {
        let id = draw();
        if id != 0 {
            return id;
        }
    }
}

impl Parent {
    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text.trim_ascii()).ok()?;
        // Later versions may append more after a dash.
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let mut next = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            is_hex.then(|| u128::from_str_radix(part, 16).ok()).flatten()
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let is_sound = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        (is_sound && trace != 0 && span != 0)
            .then_some(Self { trace, sampled: flags & u128::from(SAMPLED) != 0 })
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::*;
    use crate::table::Policy;

    const CLIENTS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The trace headers for a backend, for a request with these headers.
    fn trace_headers(
        policy: LocationPolicy,
        fields: &[(&'static str, &'static str)],
    ) -> (String, Option<String>) {
        let mut head = Fields::default();
        fields.iter().for_each(|(name, value)| head.append(*name, *value));
        let policy = LocationPolicy { enable_opentelemetry: Some(true), ..policy };
        tell(&mut head, &Policy::compile(&policy).unwrap().tracing.unwrap());
        let text = |name| head.joined(name).map(|value| String::from_utf8(value.to_vec()).unwrap());
        (text(PARENT).unwrap(), text(STATE))
    }

    #[test]
    fn a_parent_is_one_to_the_letter() {
        let parent = |text: &str| Parent::read(text.as_bytes());
        assert!(parent(CLIENTS).unwrap().sampled);
        assert!(!parent(&CLIENTS.replace("-01", "-02")).unwrap().sampled);
        let later = CLIENTS.replacen("00", "cc", 1);
        assert!(parent(&later).is_some() && parent(&format!("{later}-more")).is_some());
        for text in [
            "",
            "00",
            &CLIENTS.to_uppercase(),
            &CLIENTS.replacen("00", "ff", 1),
            &format!("{CLIENTS}-more"),
            &format!("{later}more"),
            &format!("{CLIENTS},{CLIENTS}"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-000f067aa0ba902b7-01",
        ] {
            assert_eq!(parent(text), None, "{text}");
        }
    }

    #[test]
    fn a_trace_is_continued_with_a_span_of_ours() {
        let (parent, state) = trace_headers(LocationPolicy::default(), &[(PARENT, CLIENTS), (STATE, "a=1")]);
        let parts: Vec<_> = parent.split('-').collect();
        assert_eq!((parts[1], parts[3], state.as_deref()), (&CLIENTS[3..35], "01", Some("a=1")));
        assert_ne!(parts[2], &CLIENTS[36..52]);
        let unsampled = &*Box::leak(CLIENTS.replace("-01", "-00").into_boxed_str());
        assert!(trace_headers(LocationPolicy::default(), &[(PARENT, unsampled)]).0.ends_with("-00"));
        let own = LocationPolicy { otel_sampler_parent_based: Some(false), ..LocationPolicy::default() };
        assert!(trace_headers(own, &[(PARENT, unsampled)]).0.ends_with("-01"));
    }

    #[test]
    fn a_trace_begins_where_there_is_none_to_continue() {
        let distrusts =
            LocationPolicy { opentelemetry_trust_incoming_span: Some(false), ..LocationPolicy::default() };
        for (policy, fields) in [
            (LocationPolicy::default(), &[][..]),
            (LocationPolicy::default(), &[(PARENT, "none"), (STATE, "a=1")]),
            (LocationPolicy::default(), &[(PARENT, CLIENTS), (PARENT, CLIENTS)]),
            (distrusts, &[(PARENT, CLIENTS), (STATE, "a=1")]),
        ] {
            let (parent, state) = trace_headers(policy, fields);
            let read = Parent::read(parent.as_bytes()).unwrap();
            assert!(read.sampled && !parent.contains(&CLIENTS[3..35]) && state.is_none(), "{parent}");
        }
    }
}
