//! Reads limits from the source of a crate: constants, defaults of structs, flags, and the names of tests.
//!
//! Values are in thousandths, so that a time of 50 ms is a number as well as a size of 64 KiB.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What one is, in the unit of values.
pub(crate) const ONE: u128 = 1_000;

/// Types that a limit has.
const TYPES: [&str; 5] = ["usize", "u64", "u32", "i32", "Duration"];

/// Structs whose fields are limits.
const STRUCTS: [&str; 3] = ["Limits", "Sizes", "Timeouts"];

/// Limits of a crate by path: `serve::admission::PAUSE`, `serve::limits::first_call`. `None`: not known without running
/// it.
pub(crate) type Limits = BTreeMap<String, Option<u128>>;

/// The limits of some files and folders of a crate, tests and bodies of fuzz targets left out.
pub(crate) fn limits(krate: &str, places: &[&str]) -> Limits {
    let root = repository().join(krate).join("src");
    let mut written = BTreeMap::new();
    for place in places {
        let files = files(&root.join(place));
        assert!(!files.is_empty(), "{krate}/src/{place} is no file and no folder");
        for file in files.iter().filter(|file| !is_test(file)) {
            let text = fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let module = module(file.strip_prefix(&root).unwrap());
            for (name, expression) in constants(code).chain(fields(code)) {
                written.insert(format!("{module}::{name}"), expression);
            }
        }
    }
    let value = |(name, expression): (&String, &String)| (name.clone(), evaluate(expression, name, &written));
    written.iter().map(value).collect()
}

/// Flags of a crate that take a number, with the number that they have where nobody says one.
pub(crate) fn flags(krate: &str) -> BTreeMap<String, Option<String>> {
    let text = fs::read_to_string(repository().join(krate).join("src/args.rs")).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let mut flags = BTreeMap::new();
    for attribute in code.split("#[arg(").skip(1) {
        let (attribute, field) = attribute.split_once(")]").unwrap();
        let said = |key: &str| Some(attribute.split_once(&format!("{key} = \""))?.1.split_once('"')?.0);
        if !said("value_name").is_some_and(|kind| ["N", "BYTES", "SECONDS"].contains(&kind)) {
            continue;
        }
        assert!(said("env").is_some_and(|name| name.starts_with("FIRTH_")), "no variable: {attribute}");
        let name = field.trim_start().trim_start_matches("pub ").split(':').next().unwrap();
        flags.insert(format!("--{}", name.replace('_', "-")), said("default_value").map(str::to_owned));
    }
    flags
}

/// Names of the tests of a crate.
pub(crate) fn tests(krate: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ["src", "tests"].iter().flat_map(|folder| files(&repository().join(krate).join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        for test in text.split("test]\n").chain(text.split("test(start_paused = true)]\n")).skip(1) {
            let line = test.lines().find(|line| line.contains("fn "));
            found.extend(line.and_then(|line| Some(line.split_once("fn ")?.1.split('(').next()?.to_owned())));
        }
    }
    found
}

/// A page of the repository.
pub(crate) fn page(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of Rust at or below a path.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let entries = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| files(&path))
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect();
    found.sort();
    found
}

fn is_test(file: &Path) -> bool {
    file.components()
        .any(|part| ["tests", "tests.rs", "fuzz.rs"].iter().any(|name| part.as_os_str() == *name))
}

fn module(path: &Path) -> String {
    let parts = path.with_extension("");
    let parts: Vec<_> =
        parts.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
    parts.join("::")
}

/// `const NAME: usize = EXPRESSION;`
fn constants(code: &str) -> impl Iterator<Item = (String, String)> {
    code.split("const ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        let (kind, rest) = rest.split_once(" =")?;
        let is_name = !name.is_empty()
            && name.chars().all(|it| it.is_ascii_uppercase() || it == '_' || it.is_ascii_digit());
        let expression = rest.split_once(';')?.0;
        (is_name && TYPES.contains(&kind)).then(|| (name.to_owned(), expression.trim().to_owned()))
    })
}

/// `field: EXPRESSION,` of the first value of a struct of limits that stands behind it.
fn fields(code: &str) -> impl Iterator<Item = (String, String)> {
    STRUCTS.iter().flat_map(move |name| {
        let Some((_, rest)) = code.split_once(&format!("struct {name} {{\n")) else { return Vec::new() };
        let (body, rest) = rest.split_once("\n}").unwrap();
        let declared = body.lines().filter_map(|line| {
            let (name, kind) = line.trim().strip_suffix(',')?.split_once(": ")?;
            let name = name.split_whitespace().last()?;
            TYPES.contains(&kind).then_some(name)
        });
        declared
            .map(|field| (field.to_owned(), default_of(field, rest).unwrap_or_default().to_owned()))
            .collect()
    })
}

/// What a field is set to first.
fn default_of<'a>(field: &str, code: &'a str) -> Option<&'a str> {
    let set = format!("{field}: ");
    let mut places = code.match_indices(&set).map(|(at, _)| at);
    let at = places.find(|at| code[..*at].ends_with([' ', '{', '(']))?;
    let expression = &code[at + set.len()..];
    let mut depth = 0;
    let end = expression.find(|it| {
        match it {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth < 0 || (depth == 0 && [',', '}', '\n'].contains(&it))
    });
    Some(expression[..end?].trim())
}

/// The value of an expression of numbers, times and names that stand in `written`, seen from the limit `from`.
fn evaluate(expression: &str, from: &str, written: &BTreeMap<String, String>) -> Option<u128> {
    let of = |expression: &str| evaluate(expression, from, written);
    let expression = expression.trim();
    // What binds least is taken apart first.
    for operators in [&["<<"][..], &[" + ", " - "], &[" * ", " / "]] {
        let split = operators.iter().filter_map(|it| Some((expression.rfind(it)?, *it))).max();
        if let Some((at, operator)) = split {
            let (left, right) = (of(&expression[..at])?, of(&expression[at + operator.len()..])?);
            return match operator.trim() {
                "<<" => Some(left << (right / ONE)),
                "+" => Some(left + right),
                "-" => left.checked_sub(right),
                "*" => Some(left * right / ONE),
                _ => Some(left * ONE / right),
            };
        }
    }
    let called = |name: &str| expression.strip_prefix(name)?.strip_suffix(')');
    if let Some(seconds) = called("Duration::from_secs(") {
        return of(seconds);
    }
    if let Some(milliseconds) = called("Duration::from_millis(") {
        return Some(of(milliseconds)? / ONE);
    }
    if let Some((number, _)) = expression.split_once(" as ") {
        return of(number);
    }
    if expression == "Duration::ZERO" {
        return Some(0);
    }
    if let Ok(number) = expression.replace('_', "").parse::<u128>() {
        return Some(number * ONE);
    }
    let name = expression.trim_start_matches("Self::");
    let is_name = !name.is_empty() && name.chars().all(|it| it.is_alphanumeric() || ['_', ':'].contains(&it));
    let beside = from.rsplit_once("::").map(|(module, _)| format!("{module}::{name}"));
    let found = beside.filter(|beside| written.contains_key(beside)).or_else(|| {
        let elsewhere = format!("::{name}");
        written.keys().find(|known| known.ends_with(&elsewhere)).cloned()
    });
    let found = found.filter(|found| is_name && found != from)?;
    evaluate(&written[&found], &found, written)
}
