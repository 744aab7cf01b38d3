use super::*;

#[test]
fn the_token_table_is_the_grammar() {
    let tchar = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for b in 0..=255u8 {
        assert_eq!(is_token(b), b.is_ascii() && tchar.contains(char::from(b)), "{b}");
    }
    assert!(!is_name(b"") && is_name(b"a.b_c"));
    assert!(
        is_lower_name(b"a.b_c-1") && !is_lower_name(b"a.B") && !is_lower_name(b"") && !is_lower_name(b"a b")
    );
    assert!(is_plain_name(b"X-1") && !is_plain_name(b"X_1") && !is_plain_name(b"X.1"));
}
