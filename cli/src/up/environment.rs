//! The command lines of the two planes within `firth up`, and the environment variables that each of them reads.
//!
//! **Invariant:** no variable is read by both planes unless it means the same for both; and no variable determines
//! which peer a plane connects to, since that is decided here.

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory as _};

use super::flags;

/// No variable.
const NONE: Option<&str> = None;

/// Parses the command line of the control plane.
///
/// # Errors
/// If an argument or a variable is invalid.
pub(crate) fn control(words: Vec<OsString>) -> anyhow::Result<control_plane::args::Args> {
    flags::parse(control_command(), words)
}

/// Parses that of the data plane.
///
/// # Errors
/// As [`control`].
pub(super) fn data(words: Vec<OsString>) -> anyhow::Result<data_plane::args::Args> {
    flags::parse(data_command(), words)
}

/// The variable that stands for a flag of a plane (`--configmap`) where a command runs that plane. Where both planes have the flag it is the
/// proxy's, as in the help.
pub(crate) fn variable(command: &str, flag: &str) -> Option<String> {
    let planes: &[fn() -> Command] = match command {
        "up" => &[data_command, control_command],
        "check" => &[control_command],
        _ => return None,
    };
    let long = flag.strip_prefix("--")?;
    let has_it = |arg: &&Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(long) || aliases.contains(&long)
    };
    planes.iter().find_map(|plane| {
        let variable = plane().get_arguments().find(has_it)?.get_env()?.to_string_lossy().into_owned();
        Some(variable)
    })
}

/// Whether its variable is set for `firth up`.
pub(super) fn is_said(flag: &str) -> bool {
    variable("up", flag).is_some_and(|name| std::env::var_os(name).is_some())
}

fn control_command() -> Command {
    // The short names belong to the proxy: users of `firth up` mean what it serves.
    control_plane::args::Args::command()
        .mut_arg("admin", |arg| arg.env("FIRTH_CONTROL_PLANE_ADMIN"))
        .mut_arg("max_connections", |arg| arg.env("FIRTH_CONTROL_PLANE_MAX_CONNECTIONS"))
        // Also set in the environment of users who query a cluster; this control plane reads a folder.
        .mut_arg("kubeconfig", |arg| arg.env(NONE))
}

fn data_command() -> Command {
    // It joins with a token of this process.
    data_plane::args::Args::command()
        .mut_arg("token_file", |arg| arg.env(NONE))
        .mut_arg("ca", |arg| arg.env(NONE))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn variables(command: &Command) -> BTreeSet<String> {
        let names = command.get_arguments().filter_map(|arg| arg.get_env());
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_planes_do_not_take_a_variable_for_two_things() {
        let (control, data) = (variables(&control_command()), variables(&data_command()));
        let both: Vec<_> = control.intersection(&data).map(String::as_str).collect();
        // The group, the folder and plaintext are given by flags, which have precedence.
        assert_eq!(
            both,
            [
                "FIRTH_GROUP",
                "FIRTH_INSECURE",
                "FIRTH_LOG",
                "FIRTH_LOG_FORMAT",
                "FIRTH_MEMORY",
                "FIRTH_STATE_DIR"
            ]
        );
        assert!(control.contains("FIRTH_CONTROL_PLANE_ADMIN") && data.contains("FIRTH_ADMIN"));
        assert!(!control.contains("FIRTH_KUBECONFIG") && !data.contains("FIRTH_CA"));
        control_command().debug_assert();
        data_command().debug_assert();
    }

    #[test]
    fn a_flag_has_the_variable_of_the_plane_that_a_command_runs() {
        for (command, flag, expected) in [
            ("up", "--configmap", Some("FIRTH_CONFIGMAP")),
            ("check", "--tcp-services-configmap", Some("FIRTH_TCP_SERVICES_CONFIGMAP")),
            ("up", "--admin", Some("FIRTH_ADMIN")),
            ("check", "--admin", Some("FIRTH_CONTROL_PLANE_ADMIN")),
            ("up", "--public-https-port", Some("FIRTH_PUBLIC_HTTPS_PORT")),
            ("check", "--public-https-port", None),
            ("up", "--kubeconfig", None),
            ("up", "--no-such-flag", None),
            ("diff", "--configmap", None),
        ] {
            assert_eq!(variable(command, flag).as_deref(), expected, "{command} {flag}");
        }
    }
}
