use std::time::Instant;

use super::*;

/// Hash of `secret`, with the lowest cost.
const QUICKEST: &str = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

fn list(name: &str) -> Arc<str> {
    name.into()
}

/// Takes all places, each for another namespace.
fn fill(passwords: &Passwords) {
    let mut work = lock(&passwords.0.work);
    for number in 0..QUEUES {
        let job = Job { digest: [0; 32], hash: "".into(), password: Box::default() };
        assert!(work.queues.push(&list(&format!("{number}/users/auth-file")), job));
    }
}

fn waiting(passwords: &Passwords) -> usize {
    lock(&passwords.0.work).waiting.len()
}

#[tokio::test]
async fn only_correct_passwords_are_cached() {
    let passwords = Passwords::default();
    let (list, hash) = (list("ns/users/auth-file"), Arc::<str>::from(QUICKEST));
    assert_eq!(passwords.ask(&list, "alice", &hash, b"wrong").await, Verdict::Wrong);
    assert_eq!(passwords.ask(&list, "alice", &hash, b"secret").await, Verdict::Fits);
    let digest = |user, password| passwords.0.digest(user, &hash, password).unwrap();
    assert!(passwords.0.remembers(&digest("alice", b"secret")));
    assert!(!passwords.0.remembers(&digest("alice", b"wrong")));
    assert!(!passwords.0.remembers(&digest("alic", b"esecret")), "each part has its length");
    // No thread is used: the queues may be full.
    let full = Passwords::default();
    fill(&full);
    let known = full.0.digest("alice", &hash, b"secret").unwrap();
    full.0.shard(&known).add(known);
    assert_eq!(full.ask(&list, "alice", &hash, b"secret").await, Verdict::Fits);
    assert_eq!(full.ask(&list, "alice", &hash, b"new").await, Verdict::Busy);
}

#[tokio::test]
async fn hashes_that_take_no_time_wait_for_nobody() {
    let passwords = Passwords::default();
    fill(&passwords);
    let list = list("ns/users/auth-file");
    for hash in ["{PLAIN}secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="] {
        let hash = Arc::<str>::from(hash);
        assert_eq!(passwords.ask(&list, "alice", &hash, b"secret").await, Verdict::Fits);
        assert_eq!(passwords.ask(&list, "alice", &hash, b"wrong").await, Verdict::Wrong);
    }
    assert_eq!(passwords.ask(&list, "alice", &Arc::from("hunter2"), b"hunter2").await, Verdict::Wrong);
    let slow = Arc::<str>::from("$6$rounds=500000$saltsalt$x");
    assert_eq!(
        passwords.ask(&list, "alice", &slow, &[b'x'; 24 * 1024]).await,
        Verdict::Wrong,
        "far too long"
    );
    assert_eq!(passwords.ask(&list, "alice", &slow, &[b'x'; 256]).await, Verdict::Busy);
}

/// A flood on one list is refused beyond a queue length, and a password of another list is checked after at most one
/// of the flood.
#[tokio::test]
async fn a_flood_stops_no_neighbour() {
    let passwords = Passwords::default();
    let hash = Arc::<str>::from(QUICKEST);
    let (flooded, quiet) = (list("ns/flooded/auth-file"), list("ns/quiet/auth-file"));
    let attempt = |list: &Arc<str>, password: String| {
        let digest = passwords.0.digest("alice", &hash, password.as_bytes()).unwrap();
        let job = Job { digest, hash: Arc::clone(&hash), password: password.into_bytes().into() };
        submit(&passwords.0, list, job)
    };
    let flood: Vec<_> = (0..QUEUE * 2).map(|i| attempt(&flooded, format!("guess {i}"))).collect();
    let accepted = flood.iter().flatten().count();
    assert!((QUEUE..QUEUE + 16).contains(&accepted), "{accepted}");
    let begun = Instant::now();
    assert_eq!(passwords.ask(&quiet, "alice", &hash, b"secret").await, Verdict::Fits);
    let alone = begun.elapsed();
    let answers = futures::future::join_all(flood.into_iter().flatten()).await;
    assert!(answers.iter().all(|fits| *fits == Ok(false)));
    assert!(begun.elapsed() > alone * 3, "the neighbour did not wait for the flood");
    assert_eq!(waiting(&passwords), 0);
}

#[tokio::test]
async fn one_password_is_compared_once_for_all_who_wait() {
    let passwords = Passwords::default();
    let (list, hash) = (list("ns/users/auth-file"), Arc::<str>::from(QUICKEST));
    let asks = (0..WAITING + 10).map(|_| passwords.ask(&list, "alice", &hash, b"secret"));
    let verdicts = futures::future::join_all(asks).await;
    let fits = verdicts.iter().filter(|verdict| **verdict == Verdict::Fits).count();
    assert!(fits >= WAITING, "{fits}");
    assert!(lock(&passwords.0.work).threads <= THREADS);
}

/// Nothing is computed for clients that are gone.
#[tokio::test]
async fn password_job_without_waiters_is_skipped() {
    let mut work = Work::default();
    let (gone, _) = oneshot::channel();
    let job = |byte| Job { digest: [byte; 32], hash: "".into(), password: Box::default() };
    let (there, _kept) = oneshot::channel();
    work.waiting.extend([([1; 32], vec![gone]), ([2; 32], vec![there])]);
    assert!(work.queues.push(&list("a"), job(1)) && work.queues.push(&list("a"), job(2)));
    assert_eq!(work.pop().map(|job| job.digest), Some([2; 32]));
    assert!(work.pop().is_none());
    assert!(work.queues.is_empty());
    assert_eq!(work.waiting.len(), 1);
}
