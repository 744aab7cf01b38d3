//! `firth check`: what a control plane would say of manifests, before there is one.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use control_plane::app::check::{Checked, check};
use control_plane::objects::{ObjectKind, ObjectRef};
use control_plane::problem::{Problem, Severity, Subject};
use control_plane::{Manifests, problem_message};
use shared::name::ObjectName;
use shared::proto::inspect;

mod proxy;

use crate::args::{CheckArgs, Format};
use crate::ask::problems;
use crate::classes::{Classes, Other};
use crate::up::environment;
use crate::{output, snippets, unread};

/// The name of standard input, as an argument and in the places of problems.
const INPUT: &str = "-";

/// What is checked instead of the parts that kustomize makes manifests of.
const INSTEAD: &str = "kubectl kustomize DIR | firth check -";

/// Severity of what is not read, in JSON: it is no problem of an object, and --strict does not count it.
const IGNORED: &str = "ignored";

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
    let mut classes = Classes::default();
    manifests.events.iter().for_each(|event| classes.hear(event));
    let mut checked = check(&flags, manifests)?;
    let refused = proxy::refused(&checked.config, &checked.live, &flags.configmap);
    // In front, as those that are rejected.
    checked.problems.splice(0..0, refused);
    if checked.ours == 0 && !flags.ignore_ingress_classes {
        checked.problems.extend(elsewhere(&classes, &flags.controller_class));
    }
    output::print(&match args.output {
        Format::Text => text(&checked, &flags.configmap),
        Format::Json => serde_json::to_string_pretty(&json(&checked))? + "\n",
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

/// Where nothing is ours: the classes of other controllers.
fn elsewhere(classes: &Classes, ours: &str) -> Vec<Problem> {
    let others = classes.of_others(ours).into_iter();
    let problem = |other: Other<'_>| {
        let name = ObjectName::new("", other.class);
        Problem {
            object: ObjectRef { kind: ObjectKind::IngressClass, name }.into(),
            field: "spec.controller".to_owned(),
            severity: Severity::Warning,
            reason: other.reason(ours),
            location: String::new(),
        }
    };
    others.map(problem).collect()
}

/// For programs: the problems as a running control plane sends them, then what is not read.
fn json(checked: &Checked) -> Vec<problems::Problem> {
    let unread = checked.ignored.iter().map(|kind| inspect::Problem {
        object: kind.clone(),
        severity: IGNORED.to_owned(),
        reason: unread::line(kind, INSTEAD),
        ..Default::default()
    });
    problems::views(messages(checked).into_iter().chain(unread).collect())
}

/// As a running control plane sends them, the worst first: by what they mean for requests, then by severity.
fn messages(checked: &Checked) -> Vec<inspect::Problem> {
    let mut messages: Vec<_> = checked.problems.iter().map(problem_message).collect();
    problems::sort(&mut messages);
    messages
}

/// For people: the problems, then how many there are, and what would allow most of them.
fn text(checked: &Checked, configmap: &ObjectName) -> String {
    let Checked { problems: found, ingresses, ours, classless, ignored, .. } = checked;
    let messages = messages(checked);
    let mut text = problems::text(&problems::views(messages.clone()));
    for kind in ignored {
        text.push_str(&output::printable(&unread::line(kind, INSTEAD)));
        text.push('\n');
    }
    let noun = if *ingresses == 1 { "Ingress" } else { "Ingresses" };
    let mut summary = format!("{ingresses} {noun}, {} of a class that is served", ours - classless);
    if *classless > 0 {
        summary += &format!(", {classless} of no class (served here; a cluster needs the class)");
    }
    // Beside the number of Ingresses, what is wrong with whole files is not counted as if it were about one of them.
    let (of_files, of_objects): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|it| matches!(it.object, Subject::File(_)) && it.severity == Severity::Rejected);
    for severity in [Severity::Rejected, Severity::Unsupported, Severity::Overridden, Severity::Warning] {
        match of_objects.iter().filter(|it| it.severity == severity).count() {
            0 => {}
            count if count > 1 && severity == Severity::Warning => summary += &format!(", {count} warnings"),
            count => summary += &format!(", {count} {}", severity.as_str()),
        }
    }
    match of_files.iter().map(|it| &it.object).collect::<BTreeSet<_>>().len() {
        0 => {}
        1 => summary += ", 1 file with faults",
        count => summary += &format!(", {count} files with faults"),
    }
    let of_snippets = snippets::line(&messages, configmap);
    let of_snippets = of_snippets.map(|line| output::printable(&line) + "\n").unwrap_or_default();
    text + &summary + "\n" + &of_snippets
}
