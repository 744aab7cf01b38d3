//! The command line of `firth status`.

use std::time::Duration;

use shared::duration;

use super::AskArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Kind of the object
    #[arg(value_name = "KIND", value_parser = ["ingress", "service", "secret"], ignore_case = true)]
    pub(crate) kind: String,
    /// Its namespace and name
    #[arg(value_name = "NS/NAME", value_parser = object)]
    pub(crate) object: (String, String),
    /// Wait until every proxy serves it, or until it is certain that some never will
    #[arg(
        long, env = "FIRTH_WAIT", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true"
    )]
    pub(crate) wait: bool,
    /// With --wait: how long to wait; 0s asks once
    #[arg(long, env = "FIRTH_TIMEOUT", value_name = "SPAN", default_value = "60s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// The object's metadata.resourceVersion to ask about. Default: the newest that the control plane has seen
    #[arg(long, env = "FIRTH_RESOURCE_VERSION", value_name = "COUNT")]
    pub(crate) resource_version: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

fn object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("expected NAMESPACE/NAME, got {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_a_namespace_and_a_name() {
        assert_eq!(object("a/b"), Ok(("a".to_owned(), "b".to_owned())));
        for bad in ["", "a", "/", "a/", "/b", "a/b/c"] {
            assert!(object(bad).is_err(), "{bad}");
        }
    }
}
