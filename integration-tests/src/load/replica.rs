//! One control plane under test: the real binary over a folder of manifests, killed and restarted on demand.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::time;

use super::usage::Usage;
use crate::process::Process;
use crate::{client, ports};

/// Between two looks whether it is ready.
const PACE: Duration = Duration::from_millis(2);

/// A control plane. It ends when this is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct Replica {
    program: PathBuf,
    flags: Vec<OsString>,
    /// Where its log is.
    home: PathBuf,
    listen: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

impl Replica {
    /// Starts one with its log in a folder of its own below `home`; in plaintext, unless there is a folder of an authority.
    ///
    /// # Errors
    /// If there is no such program, or no folder for its log.
    pub fn start(
        program: &Path,
        manifests: &Path,
        home: &Path,
        authority: Option<&Path>,
    ) -> io::Result<Self> {
        program
            .metadata()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
        let (listen, admin) = (ports::free(), ports::free());
        let home = home.join(listen.port().to_string());
        std::fs::create_dir_all(&home)?;
        let mut flags: Vec<OsString> = vec!["--manifests".into(), manifests.into()];
        match authority {
            Some(folder) => flags.extend(["--ca-dir".into(), folder.into()]),
            None => flags.push("--insecure".into()),
        }
        flags.extend(["--listen".into(), listen.to_string().into()]);
        flags.extend(["--admin".into(), admin.to_string().into()]);
        let process = run(program, &flags, &home);
        Ok(Self { program: program.to_owned(), flags, home, listen, admin, process })
    }

    /// Waits until it is ready, and says when that was.
    ///
    /// # Errors
    /// If it ends instead, or takes longer than `patience`.
    pub async fn ready(&mut self, patience: Duration) -> io::Result<Instant> {
        let (begun, page) = (Instant::now(), format!("http://{}", self.admin));
        loop {
            let answer = client::page(&page, "/readyz").await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(Instant::now());
            }
            if let Some(status) = self.process.ended() {
                return Err(io::Error::other(format!("it ended, {status}:\n{}", self.process.tail())));
            }
            if begun.elapsed() > patience {
                let what = format!("not ready after {patience:?}:\n{}", self.process.tail());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            time::sleep(PACE).await;
        }
    }

    /// Kills it: nothing is said to anybody.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, with the same addresses, after [`Self::kill`].
    pub fn again(&mut self) {
        self.process = run(&self.program, &self.flags, &self.home);
    }

    /// Where proxies and questions go.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// If it is not there.
    pub fn usage(&self) -> io::Result<Usage> {
        Usage::of(self.process.id())
    }
}

fn run(program: &Path, flags: &[OsString], home: &Path) -> Process {
    Process::spawn("control-plane", Command::new(program).args(flags).current_dir(home), home)
}
