//! Revocation lists that are not valid yet.

use super::*;

/// Like OpenSSL, which uses a currently valid list if there is one.
#[test]
fn a_list_of_a_time_to_come_is_none_yet() {
    let root = Authority::new("root");
    let one = root.below("one");
    let (good, bad, far) = (root.leaf(numbered(1)), root.leaf(numbered(2)), one.leaf(numbered(3)));
    let webpki = root.revoking_from(2048, &[1], 2049);
    let plain_one = plain_from("480101000000Z", &root, &[1], None);
    for early in [&webpki, &plain_one] {
        let alone = lists_of(&root, std::slice::from_ref(early));
        for leaf in [&good, &bad, &root.old(numbered(1))] {
            assert_eq!(verify(&alone, leaf, &[], 1), Err(Untrusted::EarlyRevocations));
        }
        let stranger = Authority::new("other").leaf(params("x"));
        assert_eq!(
            verify(&alone, &stranger, &[], 1),
            Err(Untrusted::UnknownIssuerOfLeaf),
            "that comes first"
        );
        for current in [root.revoking(&[2], 2049), plain(&root, &[2], None)] {
            for both in [[early.clone(), current.clone()], [current.clone(), early.clone()]] {
                let both = lists_of(&root, &both);
                assert_eq!(verify(&both, &good, &[], 1), Ok(()));
                assert_eq!(verify(&both, &bad, &[], 1), Err(Untrusted::Revoked));
            }
        }
        let between = lists_of(&root, &[early.clone(), one.revoking(&[], 2049)]);
        assert_eq!(verify(&between, &far, &[&one.der], 1), Err(Untrusted::EarlyRevocations));
    }
}
