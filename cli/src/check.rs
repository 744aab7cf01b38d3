//! `firth check`: what a control plane would say of manifests, before there is one.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use control_plane::app::check::{Checked, check};
use control_plane::problem::Severity;
use control_plane::{Manifests, problem_message};

mod proxy;

use crate::args::{CheckArgs, Format};
use crate::ask::problems;
use crate::output;
use crate::up::environment;

/// The name of standard input, as an argument and in the places of problems.
const INPUT: &str = "-";

/// Exit code: nothing was checked. The same as of an invalid command line.
const UNCHECKED: u8 = 2;

/// Prints the problems. The exit code is 1 if something would be refused, with --strict if there is any problem.
pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    run_checked(args).unwrap_or_else(|error| {
        output::complain(&error);
        ExitCode::from(UNCHECKED)
    })
}

/// The exit code of what was checked.
///
/// # Errors
/// If there are no manifests or they cannot be read, or the environment has invalid flags.
fn run_checked(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut words = vec!["firth-control-plane".into(), "--manifests".into(), INPUT.into()];
    words.extend(args.classes.words());
    let flags = environment::control(words)?;
    let manifests = read(&args.paths)?;
    if manifests == Manifests::default() {
        let paths: Vec<_> = args.paths.iter().map(|path| path.display().to_string()).collect();
        bail!("there is nothing to check in {}", paths.join(", "));
    }
    let mut checked = check(&flags, manifests)?;
    // The worst first: rejected ones are.
    let refused = proxy::refused(&checked.config, &checked.live, &flags.configmap);
    checked.problems.splice(0..0, refused);
    output::print(&match args.output {
        Format::Text => text(&checked),
        Format::Json => serde_json::to_string_pretty(&views(&checked))? + "\n",
    })?;
    let fails = checked.is_refused() || (args.strict && !checked.problems.is_empty());
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Manifests> {
    if let [one] = paths
        && one.is_dir()
    {
        return Ok(Manifests::below(one)?);
    }
    let mut texts = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let text = match name.as_str() {
            INPUT => io::read_to_string(io::stdin()).context("standard input cannot be read"),
            _ if path.is_dir() => bail!("expected one folder, or files, got the folder {name} beside others"),
            _ => std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read")),
        };
        texts.push((name, text?));
    }
    Ok(Manifests::of_texts(texts))
}

/// As a running control plane sends them.
fn views(checked: &Checked) -> Vec<problems::Problem> {
    problems::views(checked.problems.iter().map(problem_message).collect())
}

/// For people: the problems, then how many there are.
fn text(checked: &Checked) -> String {
    let Checked { problems: found, ingresses, ours, classless, ignored, .. } = checked;
    let mut text = problems::text(&views(checked));
    for kind in ignored {
        text.push_str(&output::printable(&format!("not read: {kind}")));
        if kind.starts_with("kustomize.config.k8s.io/") {
            text.push_str(" (its patches are not applied: kubectl kustomize DIR | firth check -)");
        }
        text.push('\n');
    }
    let noun = if *ingresses == 1 { "Ingress" } else { "Ingresses" };
    let mut summary = format!("{ingresses} {noun}, {} of a class that is served", ours - classless);
    if *classless > 0 {
        summary += &format!(", {classless} of no class (served here; a cluster needs the class)");
    }
    for severity in [Severity::Rejected, Severity::Unsupported, Severity::Overridden, Severity::Warning] {
        match found.iter().filter(|it| it.severity == severity).count() {
            0 => {}
            count if count > 1 && severity == Severity::Warning => summary += &format!(", {count} warnings"),
            count => summary += &format!(", {count} {}", severity.as_str()),
        }
    }
    text + &summary + "\n"
}
