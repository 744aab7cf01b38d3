//! Certificates of the authority, checked with the library that verifies them in handshakes.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use shared::identity::{Identity, Role};
use shared::tls::SERVER_NAME;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A moment after which certificates are made, in seconds from a fixed one.
fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn identity(role: Role) -> Identity {
    Identity::new("default", role, "one").unwrap()
}

fn request() -> Vec<u8> {
    let params = CertificateParams::new(vec!["stolen.test".to_owned()]).unwrap();
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn store(roots: &[Bytes]) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(CertificateDer::from_slice(root)).unwrap();
    }
    Arc::new(store)
}

fn parts(chain: &[Bytes]) -> (CertificateDer<'_>, Vec<CertificateDer<'_>>) {
    let mut chain = chain.iter().map(|der| CertificateDer::from_slice(der));
    (chain.next().unwrap(), chain.collect())
}

fn when(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap())
}

/// Whether a peer that trusts these roots accepts a client.
fn is_client(roots: &[Bytes], chain: &[Bytes], now: SystemTime) -> bool {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(store(roots), provider).build().unwrap();
    let (leaf, rest) = parts(chain);
    verifier.verify_client_cert(&leaf, &rest, when(now)).is_ok()
}

/// The same of a server.
fn is_server(roots: &[Bytes], chain: &[Bytes], now: SystemTime) -> bool {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(store(roots), provider).build().unwrap();
    let (leaf, rest) = parts(chain);
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    verifier.verify_server_cert(&leaf, &rest, &name, &[], when(now)).is_ok()
}

#[test]
fn a_certificate_says_who_its_holder_is_and_nothing_of_the_request() {
    let authority = Authority::create(at(0)).unwrap();
    let chain = authority.issue(&request(), &identity(Role::Proxy), at(0), DAY).unwrap();
    assert_eq!(Identity::of_certificate(&chain[0]), Ok(identity(Role::Proxy)));
    assert_eq!(pem::names(&chain[0]), ["one"], "no DNS name is taken over");
    assert!(is_client(&authority.trusted(), &chain, at(1)));
    assert!(!is_client(&Authority::create(at(0)).unwrap().trusted(), &chain, at(1)));
}

/// As on a machine whose clock has no battery, minutes after it was switched on.
#[test]
fn certificates_of_a_clock_that_starts_at_1970_are_good() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    let authority = Authority::create(now).unwrap();
    let chain = authority.issue(&request(), &identity(Role::ControlPlane), now, DAY).unwrap();
    assert!(is_server(&authority.trusted(), &chain, now) && is_client(&authority.trusted(), &chain, now));
    let until = Some(SystemTime::UNIX_EPOCH + DAY + Duration::from_secs(5));
    assert_eq!(validity(&chain[0]), until.map(|until| (SystemTime::UNIX_EPOCH, until)));
    let usual = authority.issue(&request(), &identity(Role::Proxy), at(0), DAY).unwrap();
    assert_eq!(validity(&usual[0]).map(|(from, _)| from), Some(at(0) - SLACK));
}

#[test]
fn only_a_control_plane_is_a_server() {
    let authority = Authority::create(at(0)).unwrap();
    for role in Role::ALL {
        let chain = authority.credentials(&identity(role), at(0), DAY, &Names::default()).unwrap().chain;
        assert_eq!(is_server(&authority.trusted(), &chain, at(1)), role == Role::ControlPlane, "{role}");
        assert!(is_client(&authority.trusted(), &chain, at(1)), "{role}");
    }
}

#[test]
fn a_certificate_is_good_for_its_life_and_for_clocks_that_are_behind() {
    let authority = Authority::create(at(10_000)).unwrap();
    let chain = authority.issue(&request(), &identity(Role::Proxy), at(10_000), DAY).unwrap();
    let good = |now| is_client(&authority.trusted(), &chain, now);
    assert!(good(at(10_000)) && good(at(10_000) + DAY));
    assert!(!good(at(10_001) + DAY), "it lives no longer");
    assert!(good(at(10_000) - SLACK), "a clock that is five minutes behind");
    assert!(!good(at(9_990) - SLACK));
}

#[test]
fn what_is_no_request_gets_nothing() {
    let authority = Authority::create(at(0)).unwrap();
    let mut broken = request();
    *broken.last_mut().unwrap() ^= 1;
    for bad in [Vec::new(), b"nothing".to_vec(), broken, vec![0x30; REQUEST_MAX + 1]] {
        let refused = authority.issue(&bad, &identity(Role::Proxy), at(0), DAY);
        assert!(matches!(refused, Err(IssueError::Request)), "{refused:?}");
    }
}

#[test]
fn a_record_is_read_as_it_was_written_and_says_what_is_wrong() {
    let authority = Authority::create(at(0)).unwrap().rotate(at(9), DAY).unwrap();
    let text = authority.to_record();
    assert_eq!(Authority::from_record(text.as_bytes()), Ok(authority.clone()));
    assert_eq!(authority.trusted_pem(at(0)).matches("BEGIN CERTIFICATE").count(), 2);
    let read = |text: &str| Authority::from_record(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(read("{\"roots\": []}"), "expected 1 to 8 roots, got 0");
    assert!(read("{\"roots\": 1}").starts_with("expected JSON with a list of roots: line 1"));
    let damaged = text.replacen("BEGIN PRIVATE", "BEGIN PUBLIC", 1);
    assert!(read(&damaged).starts_with("roots[0].key: "), "{}", read(&damaged));
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["roots"].as_array_mut().unwrap().reverse();
    assert!(read(&value.to_string()).starts_with("roots[1]: "));
    let key = text.split("PRIVATE KEY").nth(1).unwrap();
    assert!(!format!("{authority:?}").contains(&key[10..30]));
}

#[test]
fn a_root_goes_when_nothing_that_it_signed_is_good() {
    let first = Authority::create(at(0)).unwrap();
    let two = first.rotate(at(0), DAY).unwrap();
    let again = two.rotate(at(60), DAY).unwrap_err();
    assert!(matches!(again, IssueError::Rotating(_)), "one after the other");
    let signs = jiff::Timestamp::try_from(two.signs_from()).unwrap();
    assert_eq!(again.to_string(), format!("a rotation is under way: the next root signs from {signs:.0}"));
    assert_eq!((two.signs(at(0)), two.due(at(0), DAY).unwrap()), (first.signs(at(0)), None));
    let signs = two.signs_from();
    assert_eq!(signs, at(0) + DAY.mul_f64(1.5));
    assert_ne!(two.signs(signs), first.signs(at(0)));
    let second = two.trusted()[1].clone();
    let first_of = |authority: &Authority, now| {
        pem::certificates(authority.trusted_pem(now).as_bytes()).unwrap()[0].clone()
    };
    assert_eq!((first_of(&two, at(0)), first_of(&two, signs)), (first.trusted()[0].clone(), second));
    let after = two.due(signs, DAY).unwrap().unwrap();
    assert_eq!(after.trusted(), two.trusted(), "the old one is believed on");
    assert_eq!(after.to_record().matches("PRIVATE").count(), 2, "but has no key: BEGIN and END of one");
    assert_eq!(after.due(signs + DAY, DAY).unwrap(), None);
    let last = after.due(signs + DAY.mul_f64(1.5), DAY).unwrap().unwrap();
    assert_eq!(last.trusted(), two.trusted()[1..]);
}

#[test]
fn a_root_is_replaced_by_itself_long_before_it_ends() {
    let authority = Authority::create(at(0)).unwrap();
    assert_eq!(authority.due(at(0) + SIGNS, DAY).unwrap(), None);
    let replaced = authority.due(at(1) + SIGNS, DAY).unwrap().unwrap();
    assert_eq!(replaced.trusted().len(), 2);
    assert!(ROOT > SIGNS + DAY * 90);
}

#[test]
fn a_replica_whose_clock_is_behind_signs_with_what_there_is() {
    let two = Authority::create(at(0)).unwrap().rotate(at(0), DAY).unwrap();
    let after = two.due(two.signs_from(), DAY).unwrap().unwrap();
    let behind = two.signs_from() - Duration::from_secs(240);
    let chain = after.issue(&request(), &identity(Role::Proxy), behind, DAY).unwrap();
    assert!(is_client(&two.trusted(), &chain, behind));
}

#[test]
fn a_clock_that_is_far_behind_takes_nobodys_trust_away() {
    let (made, real) = (at(0) + DAY * 200, at(0) + DAY * 300);
    let late = at(0) + DAY * 100;
    let alone = Authority::create(made).unwrap();
    // With two roots, the newer one does not sign yet.
    let rotating = alone.rotate(real, DAY).unwrap();
    let followed = rotating.due(rotating.signs_from(), DAY).unwrap().unwrap();
    for (authority, real) in [(&alone, real), (&rotating, real), (&followed, rotating.signs_from())] {
        let holder = authority.issue(&request(), &identity(Role::Proxy), real, DAY).unwrap();
        let mut record = authority.clone();
        for now in [late, real, late, real] {
            record = record.due(now, DAY).unwrap().unwrap_or(record);
            assert!(is_client(&record.trusted(), &holder, real), "believed");
            assert_eq!(record.signs(real), authority.signs(real), "by a root that is known to all");
        }
        assert_eq!(record, *authority, "nothing to do");
        assert!(authority.is_of_the_future(late), "which is said");
    }
    // Slightly behind: no root signs before the newest one was created.
    let behind = alone.rotate(made - DAY.mul_f64(0.5), Duration::from_secs(1_000));
    assert!(matches!(behind, Err(IssueError::Rotating(_))), "{behind:?}");
}

#[test]
fn a_clock_that_was_far_ahead_puts_off_no_rotation_that_is_asked_for() {
    let first = Authority::create(at(0)).unwrap();
    let ahead = at(1) + SIGNS;
    let wrong = first.due(ahead, DAY).unwrap().unwrap();
    assert_eq!(wrong.trusted().len(), 2, "by that clock it has signed for a year");
    let right = at(60);
    let chain = wrong.issue(&request(), &identity(Role::Proxy), right, DAY).unwrap();
    assert_eq!(wrong.due(right, DAY).unwrap(), None, "this clock may as well be late");
    let asked = wrong.rotate(right, DAY).unwrap();
    assert_eq!((asked.trusted().len(), asked.signs_from()), (2, right + DAY.mul_f64(1.5)));
    assert!(is_client(&asked.trusted(), &chain, right));
    assert!(!asked.is_of_the_future(right), "and all is well");
    // Without a manual rotation, its time comes.
    assert_eq!(wrong.signs(wrong.signs_from()), wrong.trusted()[1]);
    // Slightly ahead is like a rotation under way.
    let little = first.rotate(at(3_600), DAY).unwrap();
    assert!(matches!(little.rotate(at(0), DAY), Err(IssueError::Rotating(_))));
}

#[test]
fn an_authority_that_a_clock_far_ahead_left_alone_is_followed_by_one_of_now_when_somebody_asks() {
    let ahead = at(0) + 2 * SIGNS;
    let made = Authority::create(ahead).unwrap();
    // Or the previous root had to be dropped by that clock.
    let rotated = Authority::create(at(0)).unwrap().due(ahead, DAY).unwrap().unwrap();
    let left = rotated.due(rotated.signs_from(), DAY).unwrap().unwrap();
    assert_eq!(left.to_record().matches("PRIVATE").count(), 2, "one key is left");
    for wrong in [made, left] {
        let chain = wrong.issue(&request(), &identity(Role::Proxy), at(60), DAY).unwrap();
        assert_eq!(wrong.due(at(60), DAY).unwrap(), None, "this clock may as well be late");
        let next = wrong.rotate(at(60), DAY).unwrap();
        assert_eq!(Authority::from_record(next.to_record().as_bytes()), Ok(next.clone()));
        assert_eq!(next.signs_from(), at(60) + DAY.mul_f64(1.5));
        assert!(is_client(&next.trusted(), &chain, at(60)), "whoever has a certificate keeps it");
        assert_eq!(next.due(at(90), DAY).unwrap(), None, "once");
        let last = next.due(at(60) + DAY.mul_f64(3.0), DAY).unwrap().unwrap();
        assert_eq!(last.trusted(), next.trusted()[next.trusted().len() - 1..]);
        assert!(last.rotate(at(60) + DAY.mul_f64(3.0), DAY).is_ok());
    }
}

/// A holder of a certificate, with the roots that were trusted when it was issued.
struct Holder {
    chain: Vec<Bytes>,
    trusts: Vec<Bytes>,
    renews: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever the timing of rotations and renewals, all holders trust each other at every moment.
    #[test]
    fn nobody_is_cut_off_by_a_rotation(
        rotations in prop::collection::vec(0_u64..9_000, 1..4),
        parts in prop::collection::vec(0.4_f64..0.6, 1..4),
    ) {
        let life = Duration::from_secs(1_000);
        let mut authority = Authority::create(at(0)).unwrap();
        let enrol = |authority: &Authority, now: u64, part: f64| {
            let who = identity(Role::ControlPlane);
            let chain = authority.credentials(&who, at(now), life, &Names::default()).unwrap().chain;
            Holder { chain, trusts: authority.trusted(), renews: now + life.mul_f64(part).as_secs() }
        };
        let mut holders: Vec<_> = parts.iter().map(|part| enrol(&authority, 0, *part)).collect();
        for now in (0..9_000).step_by(125) {
            if rotations.iter().any(|at| (now..now + 125).contains(at)) && let Ok(next) = authority.rotate(at(now), life) {
                authority = next;
            }
            authority = authority.due(at(now), life).unwrap().unwrap_or(authority);
            for (holder, part) in holders.iter_mut().zip(&parts) {
                if holder.renews <= now {
                    *holder = enrol(&authority, now, *part);
                }
            }
            for (one, other) in holders.iter().flat_map(|one| holders.iter().map(move |other| (one, other))) {
                prop_assert!(is_server(&one.trusts, &other.chain, at(now)), "at {}", now);
                prop_assert!(is_client(&authority.trusted(), &other.chain, at(now)), "at {}", now);
            }
        }
    }
}

#[test]
fn each_phase_of_a_rotation_can_be_seen() {
    use Phase::{Believed, Leaves, Signs};
    let seen = |authority: &Authority, now: u64| -> Vec<(Phase, Option<SystemTime>)> {
        let states = authority.states(at(now), DAY);
        let digests: Vec<_> = states.iter().map(|it| it.digest).collect();
        assert_eq!(digests, authority.trusted().iter().map(|der| tls::pin(der)).collect::<Vec<_>>());
        assert!(states.iter().all(|it| it.until > Some(at(now))));
        states.iter().map(|it| (it.phase, it.leaves_at)).collect()
    };
    let day = DAY.as_secs();
    let first = Authority::create(at(0)).unwrap();
    assert_eq!(seen(&first, 1), [(Signs, None)]);
    let next = first.rotate(at(10), DAY).unwrap();
    // One and a half lifetimes until it signs, and as many until the old one is dropped.
    let (signs, goes) = (10 + day * 3 / 2, 10 + day * 3);
    assert_eq!(seen(&next, signs - 1), [(Signs, Some(at(goes))), (Believed, None)]);
    assert_eq!(seen(&next, signs), [(Leaves, Some(at(goes))), (Signs, None)]);
    assert_eq!(next.states(at(10), DAY)[1].signs_from, at(signs));
    let after = |now| next.due(at(now), DAY).unwrap().unwrap();
    assert_eq!(seen(&after(goes - 1), goes - 1), [(Leaves, Some(at(goes))), (Signs, None)]);
    assert_eq!(seen(&after(goes), goes), [(Signs, None)], "as is said");
}

#[test]
fn a_root_is_good_for_clocks_that_are_behind() {
    let root = Authority::create(at(10_000)).unwrap().signs(at(10_000));
    let (from, until) = validity(&root).unwrap();
    assert_eq!((from, until), (at(10_000) - SLACK, at(10_000) + ROOT));
}

/// Of two authorities in one place: both are trusted, in the order in which they sign, and never more than a record holds.
#[test]
fn beside_another_authority_both_are_trusted_and_the_other_signs_later() {
    let (mine, other) = (Authority::create(at(0)).unwrap(), Authority::create(at(10)).unwrap());
    let mine = mine.rotate(at(20), DAY).unwrap();
    let both = mine.beside(&other, at(30), DAY).unwrap();
    assert_eq!(both.trusted(), [mine.trusted(), other.trusted()].concat());
    assert!(both.roots.is_sorted_by_key(|root| root.signs_from), "{both:?}");
    assert!(Authority::from_record(both.to_record().as_bytes()).is_ok());
    assert_eq!(both.signs(at(30)), mine.signs(at(30)));
    assert_eq!(mine.beside(&both, at(30), DAY), None, "it is believed there already");
    let many = (1..record::ROOTS_MAX).fold(other, |all, number| {
        let next = Authority::create(at(number as u64)).unwrap();
        Authority { roots: [all.roots, next.roots].concat() }
    });
    assert_eq!(many.roots.len(), record::ROOTS_MAX);
    assert_eq!(Authority::create(at(0)).unwrap().beside(&many, at(30), DAY), None, "no record holds so many");
}

/// Even a life of milliseconds, as in tests of rotations.
#[test]
fn the_next_root_never_signs_at_once() {
    assert_eq!([0, 1, 2_000].map(|millis| overlap(Duration::from_millis(millis))), [1, 1, 3]);
}

#[test]
fn a_root_of_a_record_is_one_certificate() {
    let pem = |authority: &Authority| pem::write("CERTIFICATE", &authority.roots[0].certificate).to_string();
    let [one, other] = [0, 1].map(|second| pem(&Authority::create(at(second)).unwrap()));
    let record = |certificate: &str| {
        let root = serde_json::json!({"certificate": certificate, "signs_from": 7});
        Authority::from_record(serde_json::json!({"roots": [root]}).to_string().as_bytes())
    };
    assert!(record(&one).is_ok());
    let refused = record(&(one + &other)).unwrap_err().to_string();
    assert_eq!(refused, "roots[0].certificate: expected one, got 2");
}
