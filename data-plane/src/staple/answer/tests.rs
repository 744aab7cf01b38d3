use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};

use super::super::tests::{Authority, NOW, OcspResponse, params};
use super::*;
use crate::der::write;

const UNTIL: u64 = NOW + 12 * 3600;

#[test]
fn times_are_read() {
    assert_eq!(time(b"20000101000000Z"), Some(946_684_800));
    assert_eq!(time(b"20260601000000Z"), Some(NOW));
    for text in
        ["20000101000000", "20001301000000Z", "20000230000000Z", "2000010100000Z", "+0000101000000Z", "Z"]
    {
        assert_eq!(time(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn the_authority_and_whom_it_appoints_are_believed() {
    let authority = Authority::new("authority");
    let question = authority.question();
    let good = Good { since: NOW - 12 * 3600, until: UNTIL };
    assert_eq!(judge(&OcspResponse::good(&question, &authority).response(), &question, NOW), Ok(good));
    let mut of_responder = params("responder");
    of_responder.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    let responder = authority.appointing(of_responder.clone());
    let other = Authority::new("authority").appointing(of_responder.clone());
    let nobody = authority.appointing(params("nobody"));
    of_responder.not_after = date_time_ymd(2026, 5, 1);
    let former = authority.appointing(of_responder);
    for (by, shown, outcome) in [
        (&responder, vec![&responder.der[..]], Ok(good)),
        (&responder, vec![&nobody.der[..], &responder.der], Ok(good)),
        (&responder, vec![], Err(Unusable::Signature)),
        (&nobody, vec![&nobody.der[..]], Err(Unusable::Signature)),
        (&nobody, vec![&responder.der[..]], Err(Unusable::Signature)),
        (&other, vec![&other.der[..]], Err(Unusable::Signature)),
        (&former, vec![&former.der[..]], Err(Unusable::Signature)),
        // The maximum number that is considered.
        (
            &responder,
            vec![&nobody.der[..], &nobody.der, &nobody.der, &responder.der],
            Err(Unusable::Signature),
        ),
    ] {
        let said = OcspResponse { by, shown, ..OcspResponse::good(&question, &authority) };
        assert_eq!(judge(&said.response(), &question, NOW), outcome);
    }
}

#[test]
fn ocsp_response_must_match_the_certificate_and_be_good() {
    let authority = Authority::new("authority");
    let (question, other) = (authority.question(), authority.question());
    let judged = |change: &dyn Fn(&mut OcspResponse<'_>)| {
        let mut said = OcspResponse::good(&question, &authority);
        change(&mut said);
        judge(&said.response(), &question, NOW)
    };
    assert_eq!(judged(&|said| said.about = other.certificate.clone()), Err(Unusable::Other));
    assert_eq!(judged(&|said| said.about.issuer_key[0] ^= 1), Err(Unusable::Other));
    assert_eq!(judged(&|said| said.about.issuer_name[0] ^= 1), Err(Unusable::Other));
    let revoked = write(0xa1, &write(TIME, b"20260101000000Z"));
    assert_eq!(judged(&|said| said.status = revoked.clone()), Err(Unusable::Revoked));
    assert_eq!(judged(&|said| said.status = write(0x82, &[])), Err(Unusable::Unknown));
    let mut refusal = write(ENUMERATED, &[3]);
    refusal = write(SEQUENCE, &refusal);
    assert_eq!(judge(&refusal, &question, NOW), Err(Unusable::Refused(3)));
}

#[test]
fn ocsp_response_must_be_current() {
    let authority = Authority::new("authority");
    let question = authority.question();
    let judged = |since, until, now| {
        let said = OcspResponse { since, until, ..OcspResponse::good(&question, &authority) };
        judge(&said.response(), &question, now).map(|good| good.until)
    };
    let (noon, midnight) = (Some("20260601120000Z"), "20260601000000Z");
    assert_eq!(judged(midnight, noon, UNTIL - 1), Ok(UNTIL));
    assert_eq!(judged(midnight, noon, UNTIL), Err(Unusable::Time));
    assert_eq!(judged(midnight, noon, NOW - SKEW), Ok(UNTIL));
    assert_eq!(judged(midnight, noon, NOW - SKEW - 1), Err(Unusable::Time));
    assert_eq!(judged(midnight, Some(midnight), NOW - 1), Err(Unusable::Time));
    // If no expiry is given.
    assert_eq!(judged(midnight, None, NOW + ENDLESS - 1), Ok(NOW + ENDLESS));
    assert_eq!(judged(midnight, None, NOW + ENDLESS), Err(Unusable::Time));
}

#[test]
fn nothing_that_was_changed_on_its_way_is_believed() {
    let authority = Authority::new("authority");
    let question = authority.question();
    let whole = OcspResponse::good(&question, &authority).response();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(judge(&changed, &question, NOW).is_err(), "{at}");
        assert!(judge(&whole[..at], &question, NOW).is_err(), "{at}");
    }
}
