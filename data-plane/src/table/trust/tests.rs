use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, NameConstraints, RevokedCertParams,
    SerialNumber, SigningKey, date_time_ymd,
};
use test_kit::certificates::version1;

use super::*;

mod early;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Bytes,
}

fn params(cn: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    params.use_authority_key_identifier_extension = true;
    params
}

fn of_authority(cn: &str) -> CertificateParams {
    let mut params = params(cn);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Authority {
    fn new(cn: &str) -> Self {
        Self::of(of_authority(cn))
    }

    fn of(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = Bytes::copy_from_slice(params.self_signed(&key).unwrap().der());
        Self { issuer: Issuer::new(params, key), der }
    }

    fn below(&self, cn: &str) -> Self {
        self.over(of_authority(cn))
    }

    fn over(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der());
        Self { issuer: Issuer::new(params, key), der }
    }

    fn leaf(&self, params: CertificateParams) -> Bytes {
        let key = KeyPair::generate().unwrap();
        Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der())
    }

    /// A certificate as `openssl x509 -req` makes it: version 1.
    fn old(&self, params: CertificateParams) -> Bytes {
        version1(&self.leaf(params), self.issuer.key())
    }

    fn revoking(&self, numbers: &[u64], until: i32) -> Bytes {
        self.revoking_from(2020, numbers, until)
    }

    fn revoking_from(&self, since: i32, numbers: &[u64], until: i32) -> Bytes {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(since, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Bytes::copy_from_slice(list.signed_by(&self.issuer).unwrap().der())
    }
}

/// A revocation list as `openssl ca -gencrl` makes it: version 1, without extensions. `until`: the next update.
fn plain(of: &Authority, numbers: &[u8], until: Option<&str>) -> Bytes {
    plain_from("200101000000Z", of, numbers, until)
}

fn plain_from(since: &str, of: &Authority, numbers: &[u8], until: Option<&str>) -> Bytes {
    let der = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        let length = u8::try_from(content.len()).unwrap();
        let head = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
        [head, content].concat()
    };
    let time = |text: &str| der(0x17, &[text.as_bytes()]);
    let ecdsa_with_sha256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let algorithm = der(0x30, &[ecdsa_with_sha256]);
    let (_, signer) = X509Certificate::from_der(&of.der).unwrap();
    let revoked = numbers.iter().map(|it| der(0x30, &[&[2, 1, *it], &time("200101000000Z")]));
    let revoked = match numbers {
        [] => vec![],
        _ => der(0x30, &[&revoked.collect::<Vec<_>>().concat()]),
    };
    let until = until.map(time).unwrap_or_default();
    let body = der(0x30, &[&algorithm, signer.subject().as_raw(), &time(since), &until, &revoked]);
    let signature = of.issuer.key().sign(&body).unwrap();
    der(0x30, &[&body, &algorithm, &der(3, &[&[0], &signature])]).into()
}

fn trust(certificates: &[&Bytes], revocations: &[Bytes]) -> Result<Trust, TrustError> {
    let certificates = certificates.iter().copied().cloned().collect();
    Trust::new(&Authorities { certificates, revocations: revocations.to_vec() })
}

fn verify(trust: &Trust, leaf: &Bytes, rest: &[&Bytes], depth: usize) -> Result<(), Untrusted> {
    let der = |der: &Bytes| CertificateDer::from(der.to_vec());
    let rest: Vec<_> = rest.iter().map(|it| der(it)).collect();
    trust.verify(&der(leaf), &rest, depth, Purpose::Client, UnixTime::now())
}

fn numbered(number: u64) -> CertificateParams {
    let mut params = params("numbered");
    params.serial_number = Some(SerialNumber::from(number));
    params
}

/// Valid from this year on, for one year.
fn living(mut params: CertificateParams, year: i32) -> CertificateParams {
    params.not_before = date_time_ymd(year, 1, 1);
    params.not_after = date_time_ymd(year + 1, 1, 1);
    params
}

#[test]
fn the_way_may_have_so_many_others() {
    let root = Authority::new("root");
    let one = root.below("one");
    let two = one.below("two");
    let trust = trust(&[&root.der], &[]).unwrap();
    let leaf = two.leaf(params("leaf"));
    let both = [&two.der, &one.der];
    assert_eq!(verify(&trust, &leaf, &both, 1), Err(Untrusted::TooLong));
    assert_eq!(verify(&trust, &leaf, &both, 2), Ok(()));
    assert_eq!(verify(&trust, &one.leaf(params("leaf")), &[&one.der], 1), Ok(()));
    assert_eq!(verify(&trust, &root.leaf(params("leaf")), &[], 0), Ok(()));
    assert_eq!(verify(&trust, &leaf, &[&two.der], 9), Err(Untrusted::UnknownIssuer), "one is missing");
}

/// Like OpenSSL without partial chains.
#[test]
fn only_who_signed_itself_ends_a_chain() {
    let root = Authority::new("root");
    let one = root.below("one");
    assert_eq!(trust(&[&one.der], &[]).unwrap_err(), TrustError::NoRoot);
    let both = trust(&[&one.der, &root.der], &[]).unwrap();
    let leaf = one.leaf(params("leaf"));
    assert_eq!(verify(&both, &leaf, &[], 1), Ok(()), "the Secret has the one between");
    assert_eq!(verify(&both, &leaf, &[], 0), Err(Untrusted::TooLong), "which counts");
}

#[test]
fn verification_errors_use_openssls_texts() {
    let root = Authority::new("root");
    let other = Authority::new("other");
    let trust = trust(&[&root.der], &[]).unwrap();
    let old = living(params("old"), 2000);
    let early = living(params("early"), 2090);
    let mut server = params("server");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut silent = params("silent");
    silent.use_authority_key_identifier_extension = false;
    let forged = Authority::new("root");
    let itself = params("self").self_signed(&KeyPair::generate().unwrap()).unwrap();
    let itself = Bytes::copy_from_slice(itself.der());
    for (leaf, rest, why) in [
        (root.leaf(old), vec![], Untrusted::Expired),
        (root.leaf(early), vec![], Untrusted::NotYetValid),
        (root.leaf(server), vec![], Untrusted::Purpose),
        (forged.leaf(silent), vec![], Untrusted::Signature),
        // Its authority key identifier matches no available certificate.
        (forged.leaf(params("x")), vec![], Untrusted::UnknownIssuerOfLeaf),
        (other.leaf(params("x")), vec![], Untrusted::UnknownIssuerOfLeaf),
        (other.leaf(params("x")), vec![&other.der], Untrusted::SelfSignedInChain),
        (itself, vec![], Untrusted::SelfSigned),
        (Bytes::from_static(b"no certificate"), vec![], Untrusted::Malformed),
    ] {
        assert_eq!(verify(&trust, &leaf, &rest, 1), Err(why));
    }
}

#[test]
fn an_authority_that_is_too_old_signs_for_nobody() {
    let old = Authority::of(living(of_authority("old"), 2000));
    let trust = trust(&[&old.der], &[]).unwrap();
    assert_eq!(verify(&trust, &old.leaf(params("leaf")), &[], 1), Err(Untrusted::Expired));
}

/// While an authority is renewed, the Secret has both certificates: of the same name and key, as far as webpki sees.
#[test]
fn a_renewed_authority_signs_beside_the_one_that_it_replaces() {
    let key = KeyPair::generate().unwrap();
    let [old, current, future] = [2000, 2020, 2090].map(|year| {
        let mut params = living(of_authority("renewed"), year);
        params.not_after = date_time_ymd(if year == 2020 { 2080 } else { year + 1 }, 1, 1);
        params
    });
    let der = |params: &CertificateParams| Bytes::copy_from_slice(params.self_signed(&key).unwrap().der());
    let [old_der, current_der, future_der] = [der(&old), der(&current), der(&future)];
    let authority = Authority { issuer: Issuer::new(current, key), der: current_der.clone() };
    let leaf = authority.leaf(numbered(1));
    for certificates in [[&old_der, &current_der], [&current_der, &old_der], [&future_der, &current_der]] {
        assert_eq!(verify(&trust(&certificates, &[]).unwrap(), &leaf, &[], 1), Ok(()));
        let listed = trust(&certificates, &[plain(&authority, &[2], None)]).unwrap();
        assert_eq!(verify(&listed, &leaf, &[], 1), Ok(()));
        assert_eq!(verify(&listed, &authority.leaf(numbered(2)), &[], 1), Err(Untrusted::Revoked));
    }
    for (certificates, why) in [
        ([&old_der, &old_der], Untrusted::Expired),
        // As OpenSSL, which goes by the one that lives longest.
        ([&old_der, &future_der], Untrusted::NotYetValid),
        ([&future_der, &old_der], Untrusted::NotYetValid),
    ] {
        assert_eq!(verify(&trust(&certificates, &[]).unwrap(), &leaf, &[], 1), Err(why));
    }
}

#[test]
fn self_signed_certificate_is_accepted_if_the_secret_contains_it() {
    let one = Authority::new("one");
    let twin = Authority::new("one");
    let trust = trust(&[&one.der], &[]).unwrap();
    assert_eq!(verify(&trust, &one.der, &[], 1), Ok(()));
    assert_eq!(verify(&trust, &twin.der, &[], 1), Err(Untrusted::SelfSigned));
}

#[test]
fn a_leaf_of_version_1_is_judged_as_any_other() {
    let root = Authority::new("root");
    let one = root.below("one");
    let (forged, other) = (Authority::new("root"), Authority::new("other"));
    let trust = trust(&[&root.der], &[]).unwrap();
    let good = root.old(params("good"));
    for purpose in [Purpose::Client, Purpose::Server] {
        let leaf = CertificateDer::from(good.to_vec());
        assert_eq!(trust.verify(&leaf, &[], 0, purpose, UnixTime::now()), Ok(()));
    }
    let far = one.old(params("far"));
    assert_eq!(verify(&trust, &far, &[&one.der], 1), Ok(()));
    let mut renamed = good.to_vec();
    let place = renamed.windows(4).position(|it| it == b"good").unwrap();
    renamed[place] = b'f';
    let own = KeyPair::generate().unwrap();
    let itself = version1(params("self").self_signed(&own).unwrap().der(), &own);
    for (leaf, rest, depth, why) in [
        (root.old(living(params("old"), 2000)), vec![], 1, Untrusted::Expired),
        (root.old(living(params("early"), 2090)), vec![], 1, Untrusted::NotYetValid),
        (far.clone(), vec![&one.der], 0, Untrusted::TooLong),
        (far, vec![], 1, Untrusted::UnknownIssuerOfLeaf),
        (renamed.into(), vec![], 1, Untrusted::Signature),
        (forged.old(params("x")), vec![], 1, Untrusted::Signature),
        (other.old(params("x")), vec![], 1, Untrusted::UnknownIssuerOfLeaf),
        (other.old(params("x")), vec![&other.der], 1, Untrusted::SelfSignedInChain),
        (itself, vec![], 1, Untrusted::SelfSigned),
        ([&good[..], b"x"].concat().into(), vec![], 1, Untrusted::Malformed),
    ] {
        assert_eq!(verify(&trust, &leaf, &rest, depth), Err(why));
    }
}

/// Nothing in it allows that.
#[test]
fn version_1_certificate_signs_only_as_a_root() {
    let root = Authority::new("root");
    let one = root.below("one");
    let old = version1(&one.der, root.issuer.key());
    let alone = trust(&[&root.der], &[]).unwrap();
    let helped = trust(&[&root.der, &old], &[]).unwrap();
    for leaf in [one.leaf(params("leaf")), one.old(params("leaf"))] {
        assert_eq!(verify(&alone, &leaf, &[&old], 9), Err(Untrusted::Malformed));
        assert_eq!(verify(&helped, &leaf, &[], 9), Err(Untrusted::Malformed));
        assert_eq!(verify(&alone, &leaf, &[&old, &one.der], 9), Ok(()), "nor is it in the way");
    }
    assert_eq!(trust(&[&old], &[]).unwrap_err(), TrustError::NoRoot);
    let old = version1(&root.der, root.issuer.key());
    let trust = trust(&[&old], &[]).unwrap();
    for leaf in [root.leaf(params("leaf")), root.old(params("leaf")), old] {
        assert_eq!(verify(&trust, &leaf, &[], 1), Ok(()));
    }
}

#[test]
fn a_leaf_of_version_1_needs_lists_as_any_other() {
    let root = Authority::new("root");
    let one = root.below("one");
    let (good, bad, far) = (root.old(numbered(1)), root.old(numbered(2)), one.old(numbered(3)));
    for list in [root.revoking(&[2], 2099), plain(&root, &[2], None)] {
        let lists = lists_of(&root, &[list]);
        assert_eq!(verify(&lists, &good, &[], 1), Ok(()));
        assert_eq!(verify(&lists, &bad, &[], 1), Err(Untrusted::Revoked));
        assert_eq!(verify(&lists, &far, &[&one.der], 1), Err(Untrusted::NoRevocations));
    }
    for old in [root.revoking(&[2], 2021), plain(&root, &[2], Some("210101000000Z"))] {
        assert_eq!(verify(&lists_of(&root, &[old]), &good, &[], 1), Err(Untrusted::OldRevocations));
    }
}

/// As OpenSSL: without listed names, the common name is used.
#[test]
fn name_constraints_apply_to_the_common_name() {
    let tree = |name: &str| vec![GeneralSubtree::DnsName(name.into())];
    let limited = |permitted_subtrees, excluded_subtrees| {
        let mut params = of_authority("limited");
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees });
        params
    };
    let (root, good) = (Authority::new("root"), || limited(tree("good.test"), vec![]));
    let cases = [
        ("good.test", true, true),
        ("A.Good.test", true, true),
        ("evil.test", false, true),
        ("*.evil.test", false, true),
        ("evilgood.test", false, true),
        ("bad.good.test", true, false),
        ("Ann", true, true),
        ("Ann B. Good", true, true),
    ];
    for (name, in_good, not_in_bad) in cases {
        for (params, expected) in [(good(), in_good), (limited(vec![], tree("bad.good.test")), not_in_bad)] {
            let (itself, between) = (Authority::of(params.clone()), root.over(params));
            for (authority, of, rest) in [(&itself, &itself, vec![]), (&root, &between, vec![&between.der])] {
                let trust = trust(&[&authority.der], &[]).unwrap();
                for leaf in [of.leaf(self::params(name)), of.old(self::params(name))] {
                    assert_eq!(verify(&trust, &leaf, &rest, 1).is_ok(), expected, "{name}");
                }
            }
        }
    }
    let mut listed = params("evil.test");
    listed.subject_alt_names = vec![rcgen::SanType::DnsName("good.test".try_into().unwrap())];
    let authority = Authority::of(good());
    let trust = trust(&[&authority.der], &[]).unwrap();
    assert_eq!(verify(&trust, &authority.leaf(listed), &[], 1), Ok(()), "the common one does not count");
}

#[test]
fn each_certificate_of_a_chain_needs_a_list_where_there_is_one() {
    let root = Authority::new("root");
    let one = root.below("one");
    let (good, bad) = (root.leaf(numbered(1)), root.leaf(numbered(2)));
    let far = one.leaf(numbered(3));
    let lists = |lists: &[Bytes]| trust(&[&root.der], lists).unwrap();
    let of_root = root.revoking(&[2], 2099);
    let alone = lists(std::slice::from_ref(&of_root));
    assert_eq!(verify(&alone, &good, &[], 1), Ok(()));
    assert_eq!(verify(&alone, &bad, &[], 1), Err(Untrusted::Revoked));
    assert_eq!(verify(&alone, &far, &[&one.der], 1), Err(Untrusted::NoRevocations));
    let both = lists(&[of_root, one.revoking(&[], 2099)]);
    assert_eq!(verify(&both, &far, &[&one.der], 1), Ok(()));
    let old = lists(&[root.revoking(&[2], 2021)]);
    assert_eq!(verify(&old, &good, &[], 1), Err(Untrusted::OldRevocations));
    assert_eq!(
        trust(&[&root.der], &[Bytes::from_static(b"no list")]).unwrap_err(),
        TrustError::Revocations(0)
    );
}

/// Lists that webpki cannot read count like the others, also in combination with them.
#[test]
fn lists_without_extensions_are_lists() {
    let root = Authority::new("root");
    let one = root.below("one");
    let (good, bad) = (root.leaf(numbered(1)), root.leaf(numbered(2)));
    let (far, lost) = (one.leaf(numbered(3)), one.leaf(numbered(4)));
    let lists = |lists: &[Bytes]| trust(&[&root.der], lists).unwrap();
    let later = Some("490101000000Z");
    let of_root = plain(&root, &[2], later);
    for list in [of_root.clone(), plain(&root, &[7, 2], None)] {
        let alone = lists(&[list]);
        assert_eq!(verify(&alone, &good, &[], 1), Ok(()));
        assert_eq!(verify(&alone, &bad, &[], 1), Err(Untrusted::Revoked));
        assert_eq!(verify(&alone, &far, &[&one.der], 1), Err(Untrusted::NoRevocations));
    }
    for both in [
        [of_root.clone(), plain(&one, &[4], later)],
        [of_root.clone(), one.revoking(&[4], 2099)],
        [root.revoking(&[2], 2099), plain(&one, &[4], None)],
    ] {
        let both = lists(&both);
        assert_eq!(verify(&both, &far, &[&one.der], 1), Ok(()));
        assert_eq!(verify(&both, &lost, &[&one.der], 1), Err(Untrusted::Revoked));
        assert_eq!(verify(&both, &bad, &[], 1), Err(Untrusted::Revoked));
    }
    let mixed = lists(&[of_root, root.revoking(&[1], 2099)]);
    assert_eq!(verify(&mixed, &good, &[], 1), Err(Untrusted::Revoked), "both are asked");
    assert_eq!(verify(&mixed, &bad, &[], 1), Err(Untrusted::Revoked));
    assert_eq!(verify(&lists(&[plain(&root, &[], later)]), &bad, &[], 1), Ok(()));
    let old = lists(&[plain(&root, &[2], Some("210101000000Z"))]);
    assert_eq!(verify(&old, &good, &[], 1), Err(Untrusted::OldRevocations));
}

#[test]
fn a_list_of_somebody_else_clears_nobody() {
    let root = Authority::new("root");
    let good = root.leaf(numbered(1));
    let forged = lists_of(&root, &[plain(&Authority::new("root"), &[], None)]);
    assert_eq!(verify(&forged, &good, &[], 1), Err(Untrusted::NoRevocations), "the name alone is the same");
    let other = lists_of(&root, &[plain(&Authority::new("other"), &[], None)]);
    assert_eq!(verify(&other, &good, &[], 1), Err(Untrusted::NoRevocations));
    let mut params = of_authority("signs no lists");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mute = Authority::of(params);
    let none = lists_of(&mute, &[plain(&mute, &[], None)]);
    assert_eq!(verify(&none, &mute.leaf(numbered(1)), &[], 1), Err(Untrusted::NoRevocations));
    let mut broken = plain(&root, &[2], None).to_vec();
    let place = broken.windows(3).position(|it| it == [2, 1, 2]).unwrap();
    broken[place + 2] = 3;
    let broken = lists_of(&root, &[broken.into()]);
    assert_eq!(verify(&broken, &good, &[], 1), Err(Untrusted::NoRevocations));
}

fn lists_of(authority: &Authority, lists: &[Bytes]) -> Trust {
    trust(&[&authority.der], lists).unwrap()
}
