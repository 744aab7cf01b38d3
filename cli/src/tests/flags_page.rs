//! Generates `docs/flags.md` from the definitions of the flags; the test fails if the file is not up to date.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use control_plane::args::original::{FLAGS, Here};
use test_kit::generated;

const HEAD: &str = "\
# Flags

Generated from the programs' own definitions: `UPDATE_DOCS=1 cargo test -p firth flags_page` writes it, and a test fails if it is out of
date. `--flag value` and `--flag=value` are the same, except for switches of `firth`, which are `--flag` or `--flag=false`; a flag on the command line wins over its environment variable.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, &control_plane::args::Args::command(), "firth-control-plane");
    section(&mut page, &data_plane::args::Args::command(), "firth-data-plane");
    let firth = crate::args::Args::command();
    for command in firth.get_subcommands() {
        section(&mut page, command, &format!("firth {}", command.get_name()));
    }
    original(&mut page);
    page
}

/// How each flag of ingress-nginx is handled.
fn original(page: &mut String) {
    page.push_str(
        "\n## Flags of ingress-nginx\n\n`firth-control-plane` takes the command line of ingress-nginx' controller. Flags without a meaning here are dropped with a \
         line in the log; a flag that asks for something unsupported ends the start with a reason.\n\n| flag | here |\n|---|---|\n",
    );
    for flag in FLAGS {
        let here = match flag.here {
            Here::Same => "the same".to_owned(),
            Here::Nothing(why) => format!("nothing: {why}"),
            Here::Elsewhere(what) => format!("no effect, with a warning: {what}"),
            Here::Refused(what) => format!("refused where it has a value: {what}"),
        };
        let _ = writeln!(page, "| `--{}` | {here} |", flag.name);
    }
}

fn section(page: &mut String, command: &Command, name: &str) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## {name}\n\n{about}.\n");
    for arg in command.get_positionals() {
        let _ = write!(page, "\n`{}`: {}.\n", values(arg), cell(arg));
    }
    page.push_str("\n| flag | variable | default | |\n|---|---|---|---|\n");
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        let Some(long) = arg.get_long().filter(|long| !matches!(*long, "help")) else {
            continue;
        };
        let flag = format!("--{long} {}", values(arg));
        let variable = arg.get_env().and_then(|env| env.to_str()).map(quoted).unwrap_or_default();
        let defaults: Vec<_> = arg
            .get_default_values()
            .iter()
            .filter_map(|it| it.to_str().filter(|it| !it.is_empty()))
            .collect();
        let default = if defaults.is_empty() { String::new() } else { quoted(&defaults.join(", ")) };
        let _ = writeln!(page, "| `{}` | {variable} | {default} | {} |", flag.trim(), cell(arg));
    }
}

fn values(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
}

fn cell(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    help.replace('|', "\\|").replace('\n', " ")
}

fn quoted(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn is_up_to_date() {
    generated::is_up_to_date("flags.md", &page(), "cargo test -p firth flags_page");
}
