//! What is exported of requests: which families, labels and buckets.

/// How values of a family are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Seconds, counted in microseconds.
    Time,
    /// Bytes of a request or an answer.
    Length,
    /// Bytes sent.
    Size,
}

/// A histogram: name, help, unit.
pub(super) type Histogram = (&'static str, &'static str, Unit);

/// How many histograms there are.
pub const FAMILIES: usize = 7;

/// The histograms, in the order of a request's figures (controller.md 11).
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

/// What all names begin with.
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
    /// Whether there is a label `host`.
    pub per_host: bool,
    /// Whether hosts that nobody has are counted by their names.
    pub per_undefined_host: bool,
    /// Whether statuses are classes.
    pub status_classes: bool,
    counts_requests: bool,
    histograms: [Option<Bounds>; FAMILIES],
    /// Numbers of one set.
    len: usize,
}

/// The buckets of one histogram.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bounds {
    /// As they are shown.
    pub(super) shown: Box<[f64]>,
    /// As they are compared: in microseconds or bytes.
    pub(super) counted: Box<[u64]>,
    /// Of its first number in a set: the buckets, one without a bound, and the sum.
    pub(super) at: usize,
}

/// What is said, to make [`Rules`] of.
#[derive(Clone, Debug, Default)]
pub struct Said<'a> {
    /// See [`Rules::class`].
    pub class: Option<&'a str>,
    /// See [`Rules::per_host`].
    pub per_host: Option<bool>,
    /// See [`Rules::per_undefined_host`].
    pub per_undefined_host: Option<bool>,
    /// See [`Rules::status_classes`].
    pub status_classes: Option<bool>,
    /// Upper bounds of times, lengths and sizes, ascending.
    pub bounds: [Option<Vec<f64>>; 3],
    /// Names of families that are left out, with the prefix or without.
    pub excluded: &'a [String],
}

impl Rules {
    /// Of what is said.
    pub fn new(said: &Said<'_>) -> Self {
        let is_left_out =
            |name: &str| said.excluded.iter().any(|it| it.strip_prefix(PREFIX).unwrap_or(it) == name);
        // The first number counts the requests.
        let mut len = 1;
        let histograms = HISTOGRAMS.map(|(name, _, unit)| {
            if is_left_out(name) {
                return None;
            }
            let (usual, scale): (&[f64], f64) = match unit {
                Unit::Time => (&TIMES, 1e6),
                Unit::Length => (&LENGTHS, 1.0),
                Unit::Size => (&SIZES, 1.0),
            };
            let shown: Box<[f64]> = said.bounds[unit as usize].as_deref().unwrap_or(usual).into();
            let at = len;
            len += shown.len() + 2;
            let counted = shown.iter().map(|bound| (bound * scale).round() as u64).collect();
            Some(Bounds { shown, counted, at })
        });
        Self {
            class: said.class.unwrap_or(CLASS).into(),
            per_host: said.per_host != Some(false),
            per_undefined_host: said.per_undefined_host == Some(true),
            status_classes: said.status_classes == Some(true),
            counts_requests: !is_left_out(REQUESTS),
            histograms,
            len,
        }
    }

    /// Whether requests are counted as such.
    pub(super) fn counts_requests(&self) -> bool {
        self.counts_requests
    }

    /// The buckets of each histogram that is not left out.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (usize, &Bounds)> {
        self.histograms.iter().enumerate().filter_map(|(place, bounds)| Some((place, bounds.as_ref()?)))
    }

    /// How many numbers a set has.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(&Said::default())
    }
}

impl Bounds {
    /// The place of a value's bucket, and that of the sum.
    pub(super) fn places(&self, value: u64) -> (usize, usize) {
        let bucket = self.counted.partition_point(|bound| *bound < value);
        (self.at + bucket, self.at + self.counted.len() + 1)
    }
}
