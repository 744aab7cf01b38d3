//! Prometheus' text format, as on ingress-nginx' pages: OpenMetrics would not allow the counter name
//! `nginx_ingress_controller_requests`, and not every scraper reads it.

use std::collections::HashMap;
use std::fmt::Write;

/// Converts an OpenMetrics page to Prometheus' text format, in which families have the same names as their samples.
pub fn classic(page: &str) -> String {
    let kinds: HashMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        let described = line.strip_prefix("# HELP ").map(|rest| ("HELP", rest));
        let described = described.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("TYPE", rest)));
        // Writing to a String cannot fail.
        let _ = match described.and_then(|(what, rest)| Some((what, rest.split_once(' ')?))) {
            Some((what, (name, rest))) => {
                let kind = kinds.get(name).copied().unwrap_or_default();
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                writeln!(out, "# {what} {name}{suffix} {}", if what == "TYPE" { kind } else { rest })
            }
            // Units and the end marker are just comments in this format.
            None if line.starts_with('#') => Ok(()),
            None => writeln!(out, "{line}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_as_their_samples_are() {
        let page = "# HELP a Of a.\n# TYPE a counter\na_total{x=\"# TYPE\"} 1\n# HELP b B.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c_seconds C.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\nc_seconds_sum 1.5\n# EOF\n";
        assert_eq!(
            classic(page),
            "# HELP a_total Of a.\n# TYPE a_total counter\na_total{x=\"# TYPE\"} 1\n# HELP b_info B.\n# TYPE b_info gauge\n\
             b_info{v=\"1\"} 1\n# HELP c_seconds C.\n# TYPE c_seconds histogram\nc_seconds_sum 1.5\n"
        );
    }
}
