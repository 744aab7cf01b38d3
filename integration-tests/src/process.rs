//! Child processes with a log, ended with their owner, and at the latest with the test run.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::eventually::{eventually, eventually_within};

/// Lines of a log that a failure shows.
const TAIL: usize = 60;

/// What a process can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of signals")]
pub enum Signal {
    Term,
    Int,
    Kill,
    Stop,
    Cont,
    Usr1,
}

impl Signal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
            Self::Usr1 => "USR1",
        }
    }
}

/// Where the standard error of a child goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// To its file.
    Kept,
    /// Into a pipe that nobody reads.
    Unread,
}

/// A running child. Its standard error goes to `NAME.log`, its standard output to `NAME.out`, both appended to.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a program with its logs in `folder`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(name: &str, command: &mut Command, folder: &Path) -> Self {
        Self::spawn_to(Log::Kept, name, command, folder)
    }

    /// The same with another way of its log.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn_to(to: Log, name: &str, command: &mut Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(open(&folder.join(format!("{name}.out"))))
            .stderr(if to == Log::Unread { Stdio::piped() } else { open(&log).into() })
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        reaper().note('+', child.id());
        Self { name: name.to_owned(), child, log, ended: None }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
            if self.ended.is_some() {
                reaper().note('-', self.child.id());
            }
        }
        self.ended
    }

    /// Sends it a signal. Does nothing if it has ended. After a stop signal, returns only once all threads have
    /// stopped: on a busy machine a thread may otherwise continue long enough to apply what comes next.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            send(signal, self.child.id());
        }
        while signal == Signal::Stop && self.ended().is_none() && !stands_still(self.child.id()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it at once and waits for that.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
            reaper().note('-', self.child.id());
        }
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// If it has not after `patience`.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let this = Mutex::new(self);
        eventually_within(patience, &what, || async {
            this.lock().expect("one thread").ended().ok_or("still running")
        })
        .await
    }

    /// All that it has written to standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its log holds these words: it is written by a thread of its own, so what a line tells of may be seen
    /// before the line.
    pub async fn logs(&self, words: &str) {
        let what = format!("{} logs {words:?}", self.name);
        eventually(&what, || async { self.log().contains(words).then_some(()).ok_or_else(|| self.log()) })
            .await;
    }

    /// All that it has written to standard output.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log.with_extension("out")).unwrap_or_default()).into_owned()
    }

    /// The end of its log, under its name.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(TAIL)..];
        format!("--- {} ---\n{}\n", self.name, shown.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
    }
}

/// The standard library only knows SIGKILL; the shell's own `kill` knows all, and is always there.
fn send(signal: Signal, id: u32) {
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{} {id}", signal.as_str())])
        .stderr(Stdio::null())
        .status();
}

/// Outlives this process by a moment and ends what it left behind: children of statics, or all of them after a crash.
#[derive(Debug)]
struct Reaper {
    list: Mutex<ChildStdin>,
    /// Never waited for: it ends after us.
    _shell: Child,
}

/// Keeps the list of living children, and of folders; when the other end of its standard input is gone, so are they.
const REAP: &str = r#"
trap '' INT TERM HUP
alive=
while read -r op id; do
    case $op in
    /) set -- "$@" "$id" ;;
    +) alive="$alive $id" ;;
    -) left=; for other in $alive; do [ "$other" = "$id" ] || left="$left $other"; done; alive=$left ;;
    esac
done
for id in $alive; do kill -KILL "$id" 2>/dev/null; done
for folder; do rm -rf -- "$folder"; done
"#;

/// Removes a temporary folder when this process has ended, even by a signal that it does not hear of.
pub fn remove_at_the_end(folder: &Path) {
    reaper().note('/', folder.display());
}

fn reaper() -> &'static Reaper {
    static REAPER: OnceLock<Reaper> = OnceLock::new();
    REAPER.get_or_init(|| {
        let mut shell = Command::new("sh")
            .args(["-c", REAP])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let list = shell.stdin.take().expect("it was asked for");
        Reaper { list: Mutex::new(list), _shell: shell }
    })
}

impl Reaper {
    fn note(&self, op: char, id: impl Display) {
        let mut list = self.list.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Without a reaper the run still ends its children by itself.
        let _ = writeln!(list, "{op} {id}");
    }
}

/// Whether each thread of a process is stopped (proc_pid_stat(5)).
fn stands_still(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let state = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let stats = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.into_iter().all(|stat| matches!(state(&stat), Some('T' | 't' | 'X' | 'Z')))
}
