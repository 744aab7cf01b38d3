//! What a plane holds, keys among it, is not shown to other processes of its user, nor written to a core file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use integration_tests::plane::binary;
use integration_tests::process::Process;
use integration_tests::{Folder, FolderSite, client, eventually, ports};
use rustix::process::geteuid;
use tempfile::TempDir;

/// A user without rights. Tests that root runs run planes as this one, for root may read everything.
const NOBODY: u32 = 65_534;

/// What the kernel shows to whoever may trace a process (ptrace(2), "Ptrace access mode checking").
const FILES: [&str; 3] = ["environ", "maps", "auxv"];

/// Runs a program as a user who is not root.
fn as_user(command: &mut Command) -> &mut Command {
    match geteuid().is_root() {
        true => command.uid(NOBODY).gid(NOBODY),
        false => command,
    }
}

/// Whether another process of the same user can read it.
fn is_shown(process: &Process, file: &str) -> bool {
    let path = format!("/proc/{}/{file}", process.id());
    let read = as_user(Command::new("cat").arg(path)).output().unwrap();
    read.status.success() && !read.stdout.is_empty()
}

/// Lets every user read a folder and what is in it.
fn show(folder: &Folder) {
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
}

/// Starts a plane and waits until it is ready.
async fn plane(name: &str, flags: &[&str], page: &str, folder: &Path) -> Process {
    // The kernel would hide one whose program its user may not read, whatever that says; and where it was built that user
    // may have no business.
    let program = folder.join(format!("{name}-program"));
    fs::copy(binary(name), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    let process = Process::spawn(name, as_user(command.args(flags)).current_dir(folder), folder);
    let url = format!("http://{page}");
    eventually(&format!("{name} is ready"), || async {
        match client::page(&url, "/readyz").await {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}\n{}", process.tail())),
        }
    })
    .await;
    process
}

#[tokio::test]
async fn planes_show_nothing_to_other_processes_of_their_user() {
    let home = TempDir::new().unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
    let home = home.path();
    let other = Process::spawn("sleep", as_user(Command::new("sleep").arg("600")), home);
    // It has replaced the test's own program.
    eventually("other programs are shown", || async {
        let shown = FILES.map(|file| is_shown(&other, file));
        if shown == [true; 3] { Ok(()) } else { Err(shown) }
    })
    .await;

    let manifests = FolderSite::folder(&[]);
    show(&manifests);
    let [listen, page, http, https, admin, health] = [(); 6].map(|()| ports::free().to_string());
    let flags = [
        "--manifests",
        manifests.path().to_str().unwrap(),
        "--listen",
        &listen,
        "--admin",
        &page,
        "--insecure",
    ];
    let control = plane("firth-control-plane", &flags, &page, home).await;
    let (url, state) = (format!("http://{listen}"), home.join("state"));
    let flags = [
        &["--control-plane", &*url, "--insecure", "--http", &http, "--https", &https, "--admin", &admin][..],
        &["--health", &health, "--state-dir", state.to_str().unwrap()],
    ]
    .concat();
    let proxy = plane("firth-data-plane", &flags, &health, home).await;
    for (name, process) in [("the control plane", &control), ("the proxy", &proxy)] {
        for file in FILES {
            assert!(!is_shown(process, file), "{name} shows its {file}");
        }
        // Nobody's but root's: that is how the kernel says that it writes no core file of a process (proc(5)).
        let owner = fs::metadata(format!("/proc/{}/environ", process.id())).unwrap().uid();
        assert_eq!(owner, 0, "{name}");
    }
}
