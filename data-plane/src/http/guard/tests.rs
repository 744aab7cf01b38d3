use super::*;

#[test]
fn lengths_are_plain_decimals() {
    for (text, number) in [("0", 0), ("7", 7), ("007", 7), ("9223372036854775807", i64::MAX as u64)] {
        assert_eq!(decimal(text.as_bytes()), Some(number), "{text}");
    }
    for text in [
        "",
        "+1",
        "-1",
        " 1",
        "1 ",
        "1,1",
        "0x1",
        "1_0",
        "9223372036854775808",
        "00000000000000000001",
        "\u{ff15}",
    ] {
        assert_eq!(decimal(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn targets_have_three_forms() {
    assert_eq!(target(Method::Get, b"/x?y"), Ok(Target::Origin));
    assert_eq!(target(Method::Get, b"//x"), Ok(Target::Origin));
    assert_eq!(target(Method::Get, b"http://a.b/x"), Ok(Target::Absolute { from: 7, to: 10 }));
    assert_eq!(target(Method::Get, b"HTTPS://a?x"), Ok(Target::Absolute { from: 8, to: 9 }));
    assert_eq!(target(Method::Options, b"*"), Ok(Target::Asterisk));
    for bad in [&b"*"[..], b"a:80", b"?x", b"ftp://a/", b"/a b", b"/\x7f", b"/#", b"http:/a", b"", b"\\x"] {
        assert_eq!(target(Method::Get, bad), Err(HeadError::Target), "{bad:?}");
    }
}

#[test]
fn the_token_table_is_the_grammar() {
    let tchar = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for b in 0..=255u8 {
        assert_eq!(is_token(b), b.is_ascii() && tchar.contains(char::from(b)), "{b}");
    }
    assert!(!is_name(b"") && is_name(b"a.b_c"));
    assert!(is_plain_name(b"X-1") && !is_plain_name(b"X_1") && !is_plain_name(b"X.1"));
}
