//! Reads the text of a `/metrics` page.

use std::collections::BTreeMap;

/// The samples of a page by their name with labels, as they stand there: `firth_requests_total{code="200"}`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Metrics {
    samples: BTreeMap<String, f64>,
}

impl Metrics {
    /// Reads a page of Prometheus' text format or of OpenMetrics. Lines that are no samples are skipped.
    pub fn parse(page: &str) -> Self {
        let sample = |line: &str| {
            let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let (name, value) = line.split_at(end);
            let value = value.split_whitespace().next()?.parse().ok()?;
            Some((name.to_owned(), value))
        };
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        Self { samples: lines.filter_map(sample).collect() }
    }

    /// The sum of all samples of a family, whatever their labels; `_total` may be left out.
    pub fn sum(&self, family: &str) -> f64 {
        self.family(family).map(|(_, value)| value).sum()
    }

    /// The sum of the samples of a family that have a label with a value.
    pub fn sum_where(&self, family: &str, label: &str, value: &str) -> f64 {
        let wanted = format!("{label}=\"{value}\"");
        let fits = self.family(family).filter(|(name, _)| name.contains(&wanted));
        fits.map(|(_, value)| value).sum()
    }

    /// Whether the page has a family.
    pub fn has(&self, family: &str) -> bool {
        self.family(family).next().is_some()
    }

    /// All samples.
    pub fn samples(&self) -> &BTreeMap<String, f64> {
        &self.samples
    }

    fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.samples.iter().filter_map(move |(name, value)| {
            let base = name.split('{').next().unwrap_or_default();
            let fits = base == family || base.strip_suffix("_total") == Some(family);
            fits.then_some((name.as_str(), *value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn reads_samples_with_and_without_labels() {
        let page = "# HELP a b\na_total 3\nb{x=\"1\",y=\"} 2\"} 4.5\nb{x=\"2\"} 1 1700000000\n# EOF\n";
        let metrics = Metrics::parse(page);
        assert_eq!(metrics.sum("a"), 3.0);
        assert_eq!(metrics.sum("b"), 5.5);
        assert_eq!(metrics.sum_where("b", "x", "2"), 1.0);
        assert!(!metrics.has("c"));
    }
}
