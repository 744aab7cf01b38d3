//! Which request metrics are exported: families, labels and buckets.

/// The unit of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Seconds, counted in microseconds.
    Time,
    /// Bytes of a request or a response.
    Length,
    /// Bytes sent.
    Size,
}

/// A histogram: name, help, unit.
pub(super) type Histogram = (&'static str, &'static str, Unit);

/// Number of histograms.
pub const FAMILIES: usize = 7;

/// The histograms, in the order of a request's figures (as in ingress-nginx).
pub(super) const HISTOGRAMS: [Histogram; FAMILIES] = [
    ("request_duration_seconds", "From the first byte of a request to the end of its answer", Unit::Time),
    ("connect_duration_seconds", "Until there was a connection to the only endpoint asked", Unit::Time),
    ("header_duration_seconds", "Until the head of the answer of the only endpoint asked", Unit::Time),
    ("response_duration_seconds", "Until the end of the answer of the only endpoint asked", Unit::Time),
    ("request_size", "Bytes of a request, its head included", Unit::Length),
    ("response_size", "Bytes of an answer, its head included", Unit::Length),
    ("bytes_sent", "Bytes of an answer, its head included; use response_size", Unit::Size),
];

/// Name of the counter.
pub(super) const REQUESTS: &str = "requests";

/// The histogram whose sum and count are also exported by Ingress and Service, as [`LATENCY`].
pub(super) const CONNECT: usize = 1;

/// Name of that summary. ingress-nginx deprecates it, but Flagger and ingress-nginx' own dashboard ask for it.
pub(super) const LATENCY: &str = "ingress_upstream_latency_seconds";

/// The prefix of all names.
pub const PREFIX: &str = "nginx_ingress_controller_";

/// `spec.controller` of ingress-nginx' IngressClasses.
const CLASS: &str = "k8s.io/ingress-nginx";

const TIMES: [f64; 11] = super::BOUNDS;
const LENGTHS: [f64; 10] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0];
const SIZES: [f64; 7] = [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7];

/// What is exported.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// Label `controller_class`.
    pub class: Box<str>,
    /// Whether there is a `host` label.
    pub per_host: bool,
    /// Whether unknown hosts are counted by name.
    pub per_undefined_host: bool,
    /// Whether statuses are counted by class.
    pub status_classes: bool,
    counts_requests: bool,
    /// Those that are counted.
    histograms: [Option<Bounds>; FAMILIES],
    /// Whether they are exported, too.
    is_exported: [bool; FAMILIES],
    sums_latency: bool,
    /// Length of a set.
    len: usize,
}

/// The buckets of one histogram.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bounds {
    /// As exported.
    pub(super) shown: Box<[Box<str>]>,
    /// As compared: in microseconds or bytes.
    pub(super) counted: Box<[u64]>,
    /// The index of its first number in a set: the buckets, one without a bound, and the sum.
    pub(super) at: usize,
}

/// The settings that [`Rules`] are made from.
#[derive(Clone, Debug, Default)]
pub struct RulesConfig<'a> {
    /// See [`Rules::class`].
    pub class: Option<&'a str>,
    /// See [`Rules::per_host`].
    pub per_host: Option<bool>,
    /// See [`Rules::per_undefined_host`].
    pub per_undefined_host: Option<bool>,
    /// See [`Rules::status_classes`].
    pub status_classes: Option<bool>,
    /// Upper bounds for times, lengths and sizes, ascending.
    pub bounds: [Option<Vec<f64>>; 3],
    /// Names of families that are excluded, with or without the prefix.
    pub excluded: &'a [String],
}

impl Rules {
    /// Compiles the settings.
    pub fn new(config: &RulesConfig<'_>) -> Self {
        let is_left_out =
            |name: &str| config.excluded.iter().any(|it| it.strip_prefix(PREFIX).unwrap_or(it) == name);
        // The first number counts the requests.
        let mut len = 1;
        let is_exported = HISTOGRAMS.map(|(name, ..)| !is_left_out(name));
        let sums_latency = !is_left_out(LATENCY);
        let is_counted = |which: usize| is_exported[which] || which == CONNECT && sums_latency;
        let histograms = std::array::from_fn(|which| {
            if !is_counted(which) {
                return None;
            }
            let (_, _, unit) = HISTOGRAMS[which];
            let (usual, scale): (&[f64], f64) = match unit {
                Unit::Time => (&TIMES, 1e6),
                Unit::Length => (&LENGTHS, 1.0),
                Unit::Size => (&SIZES, 1.0),
            };
            let bounds = config.bounds[unit as usize].as_deref().unwrap_or(usual);
            let at = len;
            len += bounds.len() + 2;
            let shown = bounds.iter().map(|bound| as_in_go(*bound).into()).collect();
            let counted = bounds.iter().map(|bound| (bound * scale).round() as u64).collect();
            Some(Bounds { shown, counted, at })
        });
        Self {
            class: config.class.unwrap_or(CLASS).into(),
            per_host: config.per_host != Some(false),
            per_undefined_host: config.per_undefined_host == Some(true),
            status_classes: config.status_classes == Some(true),
            counts_requests: !is_left_out(REQUESTS),
            histograms,
            is_exported,
            sums_latency,
            len,
        }
    }

    /// Whether the counter of requests is exported.
    pub(super) fn counts_requests(&self) -> bool {
        self.counts_requests
    }

    /// The histograms that are exported.
    pub(super) fn exported(&self) -> impl Iterator<Item = usize> {
        (0..FAMILIES).filter(|which| self.is_exported[*which])
    }

    /// Whether [`LATENCY`] is.
    pub(super) fn sums_latency(&self) -> bool {
        self.sums_latency
    }

    /// The buckets of each histogram that is counted.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (usize, &Bounds)> {
        self.histograms.iter().enumerate().filter_map(|(place, bounds)| Some((place, bounds.as_ref()?)))
    }

    /// The buckets of one of them, if it is counted.
    pub(super) fn bounds(&self, which: usize) -> Option<&Bounds> {
        self.histograms[which].as_ref()
    }

    /// Length of a set.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(&RulesConfig::default())
    }
}

impl Bounds {
    /// The index of a value's bucket, and that of the sum.
    pub(super) fn places(&self, value: u64) -> (usize, usize) {
        let bucket = self.counted.partition_point(|bound| *bound < value);
        (self.at + bucket, self.at + self.counted.len() + 1)
    }
}

/// A number as Go writes it (`%g`), and so ingress-nginx: `1e+06` for a million. Queries compare the label `le` as text.
fn as_in_go(number: f64) -> String {
    let exact = format!("{number:e}");
    match exact.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power @ (..-4 | 6..))) => format!("{digits}e{power:+03}"),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::as_in_go;

    #[test]
    fn numbers_are_written_as_by_go() {
        for (number, text) in [
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.00005, "5e-05"),
            (2.5, "2.5"),
            (10.0, "10"),
            (100_000.0, "100000"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
        ] {
            assert_eq!(as_in_go(number), text);
        }
    }
}
