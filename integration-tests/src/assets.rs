//! Obtains kube-apiserver and etcd: from a folder that the environment names, from a cache, or by building them from Go
//! modules, once.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cache;

/// Both binaries, and the Go packages that they are built from.
const BINARIES: [(&str, &str); 2] =
    [("etcd", "go.etcd.io/etcd/server/v3"), ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")];

/// The version that `kubebins/go.mod` pins; the cache has a folder for each version.
const KUBERNETES: &str = "1.36.2";

/// The Go version that builds them: 1.27 makes a kube-apiserver that serves a malformed `/openapi/v2`.
const GO: &str = "go1.26";

/// Interval of progress messages, in Go packages.
const SAY_EVERY: usize = 50;

/// A folder with etcd and kube-apiserver. Builds them if there is none: this takes minutes, with progress on standard
/// error.
///
/// In order: `KUBEBUILDER_ASSETS`; `bin` of `FIRTH_TESTBED` or of `firth-testbed` in the user's cache; our own cache.
///
/// # Errors
/// What is missing, and how to fix it.
pub fn kubernetes() -> io::Result<PathBuf> {
    if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        let folder = PathBuf::from(folder);
        return if complete(&folder) {
            Ok(folder)
        } else {
            let problem = format!("KUBEBUILDER_ASSETS={} lacks etcd or kube-apiserver", folder.display());
            Err(io::Error::new(io::ErrorKind::NotFound, problem))
        };
    }
    let testbed = env::var_os("FIRTH_TESTBED").filter(|folder| !folder.is_empty());
    let testbed = testbed.map(PathBuf::from).or_else(|| Some(cache::user()?.join("firth-testbed")));
    if let Some(folder) =
        testbed.map(|it| it.join("bin")).filter(|folder| complete(folder) && is_ours(folder))
    {
        return Ok(folder);
    }
    let folder = cache::folder()?.join("kubebins").join(KUBERNETES);
    cache::once(&folder, complete, build)?;
    Ok(folder)
}

fn complete(folder: &Path) -> bool {
    BINARIES.iter().all(|(name, _)| folder.join(name).is_file())
}

/// Whether the API server there has the version that these tests are written for: determined by running it.
fn is_ours(folder: &Path) -> bool {
    let said = Command::new(folder.join("kube-apiserver")).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default();
    let is_ours = said == format!("Kubernetes v{KUBERNETES}");
    if !is_ours {
        eprintln!("{} has {said:?}, not Kubernetes v{KUBERNETES}: passed over", folder.display());
    }
    is_ours
}

fn build(folder: &Path) -> io::Result<()> {
    check_go()?;
    eprintln!(
        "building etcd and kube-apiserver {KUBERNETES} from Go modules, once: about eight minutes on two cores"
    );
    let begun = Instant::now();
    for (name, package) in BINARIES {
        build_one(name, package, &folder.join(name), begun)?;
    }
    eprintln!("built etcd and kube-apiserver in {} s", begun.elapsed().as_secs());
    Ok(())
}

fn check_go() -> io::Result<()> {
    let wanted = format!("Kubernetes {KUBERNETES} is built with {GO}.x");
    let version = go(["env", "GOVERSION"]).output().map_err(|error| {
        let advice = "install it, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver";
        io::Error::new(error.kind(), format!("{wanted}, but `go` cannot be run ({error}): {advice}"))
    })?;
    let found = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let fits = found.strip_prefix(GO).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if fits {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&version.stderr);
        Err(io::Error::other(format!(
            "{wanted}, but `go` is {found}{said}: install it, or set GOTOOLCHAIN={GO}.8 so that go fetches it itself"
        )))
    }
}

fn build_one(name: &str, package: &str, to: &Path, begun: Instant) -> io::Result<()> {
    let version = "k8s.io/component-base/version";
    let (major, minor) = KUBERNETES.split_once('.').unwrap_or_default();
    let minor = minor.split('.').next().unwrap_or_default();
    let link = format!(
        "-s -w -X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    );
    // -v names each package on standard error when it is compiled: that is the progress.
    let mut child =
        go(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", &link, "-o"])
            .arg(to)
            .arg(package)
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
    let said = child.stderr.take().ok_or_else(|| io::Error::other("no standard error"))?;
    let (mut packages, mut last) = (0, Vec::new());
    for line in BufReader::new(said).lines() {
        let line = line?;
        packages += 1;
        if packages % SAY_EVERY == 1 {
            let seconds = begun.elapsed().as_secs();
            eprintln!("  {name}: {packages} Go packages after {seconds} s, now {line}");
        }
        last.push(line);
        if last.len() > 20 {
            last.remove(0);
        }
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("go build {package} failed ({status}):\n{}", last.join("\n"))))
    }
}

/// Go in our module.
fn go<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kubebins"));
    command
}

#[cfg(test)]
mod tests {
    use super::{BINARIES, GO, KUBERNETES};

    #[test]
    fn the_go_module_is_of_the_same_version() {
        let module = include_str!("../kubebins/go.mod");
        assert!(module.contains(&format!("k8s.io/kubernetes v{KUBERNETES}\n")));
        assert!(module.contains(&format!("\ngo {}.", GO.trim_start_matches("go"))));
        for (_, package) in BINARIES {
            assert!(module.contains(&format!("\t{package}\n")), "no tool line for {package}");
        }
    }
}
