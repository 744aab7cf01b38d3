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
    /// Wait until every proxy serves it, or it was deleted from all, or until it is certain that some never will
    #[arg(
        long, env = "FIRTH_WAIT", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true"
    )]
    pub(crate) wait: bool,
    /// With --wait: how long to wait; 0s asks once
    #[arg(long, env = "FIRTH_TIMEOUT", value_name = "SPAN", default_value = "60s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// The object's metadata.resourceVersion to ask about. Default: the newest that the control plane has seen
    #[arg(long, env = "FIRTH_RESOURCE_VERSION", value_name = "COUNT", value_parser = resource_version)]
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

/// Where a command that was to print it failed, there is nothing, for which nobody should wait.
fn resource_version(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("expected the metadata.resourceVersion of an object, got nothing".to_owned()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    #[test]
    fn no_resource_version_is_none_to_wait_for() {
        let with = |version: &str| {
            let line = ["firth", "status", "ingress", "a/b", "--wait", "--resource-version", version];
            Args::try_parse_from(line)
        };
        assert!(with("812").is_ok() && with("x-1").is_ok());
        let error = with("").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("expected the metadata.resourceVersion"), "{error}");
    }

    #[test]
    fn an_object_has_a_namespace_and_a_name() {
        assert_eq!(object("a/b"), Ok(("a".to_owned(), "b".to_owned())));
        for bad in ["", "a", "/", "a/", "/b", "a/b/c"] {
            assert!(object(bad).is_err(), "{bad}");
        }
    }
}
