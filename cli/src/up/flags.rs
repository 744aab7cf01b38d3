//! Reports invalid flags of a plane that were set by environment variables, since they are not on this command line.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, FromArgMatches};

/// Parses the flags of a plane with this command line.
///
/// # Errors
/// Names the variable with an invalid value, in one sentence.
pub(super) fn parse<T: FromArgMatches>(
    mut command: Command,
    words: Vec<std::ffi::OsString>,
) -> anyhow::Result<T> {
    let parsed = command.try_get_matches_from_mut(words).and_then(|it| T::from_arg_matches(&it));
    parsed.map_err(|error| {
        // The names of flags are known after that.
        command.build();
        anyhow::anyhow!(first_line(&error, &command))
    })
}

fn first_line(error: &clap::Error, command: &Command) -> String {
    let text = error.to_string();
    // What follows an empty line refers to the help of a program that the user did not run.
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    match variable(error, command) {
        Some(variable) => format!("{variable} in the environment: {what}"),
        None => what.to_owned(),
    }
}

fn variable(error: &clap::Error, command: &Command) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let arg = command.get_arguments().find(|arg| arg.to_string() == *flag);
    Some(arg.and_then(Arg::get_env)?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn complaint<T: Parser>(words: &[&str]) -> String {
        let words = words.iter().map(Into::into).collect();
        parse::<T>(T::command(), words).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_bad_value_is_one_line_with_its_variable() {
        let bad = complaint::<control_plane::args::Args>(&["it", "--history-count", "many"]);
        assert_eq!(
            bad,
            "FIRTH_HISTORY_COUNT in the environment: invalid value 'many' for '--history-count <N>': invalid digit found in string"
        );
        let url = "--control-plane=http://a:1";
        let bad = complaint::<data_plane::args::Args>(&["it", url, "--log-format", "xml"]);
        assert!(bad.starts_with("FIRTH_LOG_FORMAT in the environment: invalid value 'xml'"), "{bad}");
        assert!(
            bad.contains("[possible values: ") && !bad.contains('\n') && !bad.contains("--help"),
            "{bad}"
        );
        let bad = complaint::<data_plane::args::Args>(&["it", url, "--key-dir", "a"]);
        assert!(bad.contains("--state-dir") && !bad.contains('\n'), "{bad}");
    }
}
