//! The proxy's last good state on disk: a start without a control plane, and files that are damaged, old, full,
//! read-only, shared or another process'.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration_tests::client::{self, tls};
use integration_tests::objects::Edit as _;
use integration_tests::site::ingress;
use integration_tests::{DataPlane, FolderSite, Origin, eventually, eventually::same, objects};
use serde_json::json;
use tempfile::TempDir;
use test_kit::certificates;

/// A host with two states: the second path was added in the second one.
async fn two_states(further: &[&str]) -> (FolderSite, Origin) {
    let site = FolderSite::start_with(&[], &[], further).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    on_disk(&site.proxy.state_dir(), b"ingress/default/web/a.test").await;
    site.folder.apply(&ingress("more", "b.test", &[("/", "one")]));
    site.proxy.serves("b.test", "/", "one").await;
    on_disk(&site.proxy.state_dir(), b"ingress/default/more/b.test").await;
    (site, one)
}

/// Waits until the journal contains something.
async fn on_disk(dir: &Path, name: &[u8]) {
    let file = dir.join("state");
    eventually("the state is on disk", || async {
        let bytes = fs::read(&file).map_err(|error| error.to_string())?;
        let has = bytes.windows(name.len()).any(|part| part == name);
        if has { Ok(()) } else { Err(format!("{} bytes without it", bytes.len())) }
    })
    .await;
}

async fn readiness(proxy: &DataPlane) -> (u16, String) {
    match client::page(&proxy.health(), "/readyz").await {
        Ok(answer) => (answer.status, answer.text().to_owned()),
        Err(error) => (0, error.to_string()),
    }
}

/// Waits for a text of `/readyz`.
async fn says(proxy: &DataPlane, status: u16, words: &str) {
    eventually(&format!("/readyz says {status} {words}"), || async {
        let (got, text) = readiness(proxy).await;
        if got == status && text.contains(words) { Ok(()) } else { Err(format!("{got}: {text}")) }
    })
    .await;
}

async fn metric(proxy: &DataPlane, name: &str, value: f64) {
    eventually(&format!("{name} is {value}"), || async { same(proxy.metrics().await.sum(name), value) })
        .await;
}

#[tokio::test]
async fn a_proxy_starts_alone_with_everything_it_had() {
    let keys = TempDir::new_in("/dev/shm").unwrap();
    let key_dir = keys.path().join("keys");
    let (mut site, _one) = two_states(&["--key-dir", key_dir.to_str().unwrap()]).await;
    let (certificate, key) = certificates::self_signed(&["b.test"]);
    site.folder.apply(&objects::tls_secret("default", "cert", &certificate, &key));
    let tls_of = json!([{"hosts": ["b.test"], "secretName": "cert"}]);
    site.folder.apply(&ingress("more", "b.test", &[("/", "one")]).with("/spec/tls", tls_of));
    shows(&site.proxy, "b.test").await;
    on_disk(&site.proxy.state_dir(), b"default/cert").await;
    let resources = site.proxy.metrics().await.sum("firth_resources");

    site.proxy.kill();
    site.control.kill();
    site.proxy.start_again();
    says(&site.proxy, 200, "with the state on disk").await;
    site.proxy.serves("a.test", "/", "one").await;
    shows(&site.proxy, "b.test").await;
    let metrics = site.proxy.metrics().await;
    assert_eq!((metrics.sum("firth_from_disk"), metrics.sum("firth_resources")), (1.0, resources));

    site.control.resume().await;
    metric(&site.proxy, "firth_from_disk", 0.0).await;
    eventually("both lanes are in sync: not a byte of configuration is sent", || async {
        let log = site.proxy.log();
        if log.matches("mode=\"in-sync\"").count() == 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(readiness(&site.proxy).await, (200, "ok\n".to_owned()));

    // And it goes on from there.
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/later", "one")]));
    on_disk(&site.proxy.state_dir(), b"/later").await;
    nowhere(&site.proxy.state_dir(), &key);
}

/// Waits until a host's own certificate is shown.
async fn shows(proxy: &DataPlane, host: &str) {
    eventually("the certificate is shown", || async {
        let (_, names) = tls::get(proxy.https(), host, "/").await.map_err(|error| error.to_string())?;
        same(names, vec![host.to_owned()])
    })
    .await;
}

/// No file below a folder contains a part of a private key.
fn nowhere(dir: &Path, key_pem: &str) {
    let base64: String = key_pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, base64).unwrap();
    // The secret scalar stands in the middle of a PKCS #8 key.
    let needle = &der[der.len() / 4..der.len() / 4 + 24];
    for file in fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(needle.len()).any(|part| part == needle), "{} has a key", file.display());
    }
}

#[tokio::test]
async fn a_host_without_its_key_is_named_and_asked_for() {
    let (mut site, _one) = two_states(&[]).await;
    let (certificate, key) = certificates::self_signed(&["b.test"]);
    site.folder.apply(&objects::tls_secret("default", "cert", &certificate, &key));
    let tls_of = json!([{"hosts": ["b.test"], "secretName": "cert"}]);
    site.folder.apply(&ingress("more", "b.test", &[("/", "one")]).with("/spec/tls", tls_of));
    shows(&site.proxy, "b.test").await;
    on_disk(&site.proxy.state_dir(), b"default/cert").await;
    nowhere(&site.proxy.state_dir(), &key);

    site.proxy.kill();
    site.control.kill();
    site.proxy.start_again();
    says(&site.proxy, 503, "no private key for b.test").await;
    // This node has nothing else: everything that can be served is.
    site.proxy.serves("a.test", "/", "one").await;
    assert_eq!(site.proxy.metrics().await.sum("firth_keys_missing"), 1.0);

    site.control.resume().await;
    says(&site.proxy, 200, "ok").await;
    shows(&site.proxy, "b.test").await;
    metric(&site.proxy, "firth_keys_missing", 0.0).await;
}

/// Damaged forms of a journal's file, and which of the two states is then served.
#[tokio::test]
async fn no_damage_is_served_and_none_keeps_a_proxy_from_starting() {
    let (mut site, _one) = two_states(&[]).await;
    site.proxy.kill();
    site.control.kill();
    let dir = site.proxy.state_dir();
    let (file, whole) = (dir.join("state"), fs::read(dir.join("state")).unwrap());
    let flip = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let other_format = [&whole[..8], &[9, 0, 0, 0], &whole[12..]].concat();
    // (what, bytes, whether there is an earlier file, whether a.test is served, whether b.test is)
    let cases: [(&str, Vec<u8>, bool, bool, bool); 9] = [
        ("whole", whole.clone(), false, true, true),
        ("cut in the last step", whole[..whole.len() - 3].to_vec(), false, true, false),
        ("a bit in the last step", flip(whole.len() - 3), false, true, false),
        ("a bit in the first step", flip(120), false, false, false),
        ("a bit in the first step, and one before", flip(120), true, true, true),
        ("a bit in the preamble", flip(3), false, false, false),
        ("another format", other_format, false, false, false),
        ("zeros", vec![0; whole.len()], false, false, false),
        ("nothing", Vec::new(), false, false, false),
    ];
    for (what, bytes, earlier, a, b) in cases {
        fs::write(&file, bytes).unwrap();
        let before = dir.join("state.before");
        let _ = fs::remove_file(&before);
        if earlier {
            fs::write(&before, &whole).unwrap();
        }
        served(&mut site.proxy, what, a, b).await;
    }
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    served(&mut site.proxy, "a pipe", false, false).await;
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    served(&mut site.proxy, "a folder", false, false).await;
    fs::remove_dir(&file).unwrap();
    fs::write(&file, &whole).unwrap();
    fs::write(dir.join("loading"), "3").unwrap();
    served(&mut site.proxy, "three starts that ended in the middle", false, false).await;
    assert!(dir.join("state.suspect").exists());

    // In any case: with a control plane there is a good file again.
    fs::write(&file, flip(120)).unwrap();
    site.proxy.start_again();
    site.control.resume().await;
    site.proxy.serves("b.test", "/", "one").await;
    metric(&site.proxy, "firth_state_writes", 1.0).await;
    site.proxy.kill();
    site.control.kill();
    served(&mut site.proxy, "written again", true, true).await;
}

/// Starts a proxy alone, checks what it serves, and ends it.
async fn served(proxy: &mut DataPlane, what: &str, a: bool, b: bool) {
    proxy.start_again();
    if a {
        says(proxy, 200, "with the state on disk").await;
        proxy.serves("a.test", "/", "one").await;
        let there = if b { 200 } else { 404 };
        let answer = client::get(proxy.http(), "b.test", "/").await.unwrap();
        assert_eq!(answer.status, there, "{what}: b.test");
    } else {
        says(proxy, 503, "has not sent everything yet").await;
        let refused = client::get(proxy.http(), "a.test", "/").await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{what}");
    }
    assert!(proxy.process().ended().is_none(), "{what}: it ended:\n{}", proxy.log());
    proxy.kill();
}

#[tokio::test]
async fn a_state_of_another_group_or_control_plane_is_not_served() {
    let (mut site, _one) = two_states(&[]).await;
    site.proxy.kill();
    site.control.kill();
    let state = site.proxy.state_dir();
    let state = state.to_str().unwrap();
    let mut other_group =
        DataPlane::spawn(site.control.listen(), &["--state-dir", state, "--group", "other"]);
    says(&other_group, 503, "has not sent everything yet").await;
    other_group.kill();
    let elsewhere = integration_tests::ports::free();
    let mut other_address = DataPlane::spawn(elsewhere, &["--state-dir", state]);
    says(&other_address, 503, "has not sent everything yet").await;
    other_address.logs("another group or control plane").await;
    other_address.kill();
    site.proxy.start_again();
    says(&site.proxy, 200, "with the state on disk").await;
}

#[tokio::test]
async fn a_second_process_reads_and_does_not_write() {
    let (mut site, _one) = two_states(&[]).await;
    site.control.kill();
    let state = site.proxy.state_dir();
    let second =
        DataPlane::start_with(site.control.listen(), &["--state-dir", state.to_str().unwrap()]).await;
    second.serves("b.test", "/", "one").await;
    site.control.resume().await;
    metric(&second, "firth_from_disk", 0.0).await;
    metric(&second, "firth_state_failing", 1.0).await;
    second.logs("another process keeps its state").await;
    // It is the other one's turn when that one ends.
    site.proxy.kill();
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/later", "one")]));
    metric(&second, "firth_state_failing", 0.0).await;
    on_disk(&state, b"/later").await;
}

/// A small disk, taken away at the end.
struct Disk(PathBuf, #[expect(dead_code, reason = "it is removed when this ends")] TempDir);

impl Disk {
    fn new(kilobytes: u32) -> Self {
        let dir = TempDir::new().unwrap();
        let disk = Self(dir.path().to_owned(), dir);
        disk.mount(&format!("size={kilobytes}k,mode=700"));
        disk
    }

    /// # Panics
    /// If this process may not mount: a skipped test would prove nothing.
    fn mount(&self, options: &str) {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "firth"]).arg(&self.0).status();
        assert!(done.unwrap().success(), "this test has to mount a small disk, which root may");
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_costs_the_newest_state_and_nothing_else() {
    let disk = Disk::new(512);
    let state = disk.0.join("state");
    let (mut site, _one) = two_states(&["--state-dir", state.to_str().unwrap()]).await;
    let filler = fs::File::create(disk.0.join("filler")).unwrap();
    let mut at = 0;
    while filler.write_at(&[1; 4096], at).is_ok() {
        at += 4096;
    }
    // More than the rest of a page has room for.
    let long = format!("/{}", "long/".repeat(2000));
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), (&long, "one")]));
    metric(&site.proxy, "firth_state_failing", 1.0).await;
    site.proxy.serves("a.test", "/", "one").await;
    assert_eq!(readiness(&site.proxy).await.0, 200);
    assert!(site.proxy.metrics().await.sum("firth_state_errors") >= 1.0);

    drop(filler);
    fs::remove_file(disk.0.join("filler")).unwrap();
    metric(&site.proxy, "firth_state_failing", 0.0).await;
    site.proxy.logs("kept on disk again").await;
    on_disk(&state, long.as_bytes()).await;
    site.proxy.kill();
    site.control.kill();
    served(&mut site.proxy, "after a full disk", true, true).await;
}

/// On a full disk, older states are dropped before the newest one, whether it is appended or written anew.
#[tokio::test]
async fn what_was_before_makes_room_for_what_is_new() {
    let disk = Disk::new(512);
    let state = disk.0.join("state");
    let (site, _one) = two_states(&["--state-dir", state.to_str().unwrap()]).await;
    let before = state.join("state.before");
    fs::write(&before, [1; 64 << 10]).unwrap();
    let filler = fs::File::create(disk.0.join("filler")).unwrap();
    let mut at = 0;
    while filler.write_at(&[1; 4096], at).is_ok() {
        at += 4096;
    }
    let long = format!("/{}", "long/".repeat(2000));
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), (&long, "one")]));
    on_disk(&state, long.as_bytes()).await;
    metric(&site.proxy, "firth_state_failing", 0.0).await;
    assert!(!before.exists());
}

#[tokio::test]
async fn a_disk_that_is_read_only_is_read() {
    let disk = Disk::new(512);
    let state = disk.0.join("state");
    let (mut site, _one) = two_states(&["--state-dir", state.to_str().unwrap()]).await;
    site.proxy.kill();
    site.control.kill();
    disk.remount("ro");
    served(&mut site.proxy, "read-only", true, true).await;
    site.proxy.start_again();
    site.control.resume().await;
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/later", "one")]));
    metric(&site.proxy, "firth_state_failing", 1.0).await;
    site.proxy.serves("a.test", "/later", "one").await;
    disk.remount("rw");
    metric(&site.proxy, "firth_state_failing", 0.0).await;
    on_disk(&state, b"/later").await;
}

#[tokio::test]
async fn a_key_dir_on_a_disk_is_refused_aloud() {
    let dir = TempDir::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let keys = dir.path().join("keys");
    let (site, _one) = two_states(&["--key-dir", keys.to_str().unwrap()]).await;
    metric(&site.proxy, "firth_state_failing", 0.0).await;
    site.proxy.logs("is not in memory").await;
    assert!(!keys.join("keys").exists());
    assert!(site.proxy.metrics().await.sum("firth_key_errors") >= 1.0);
}
