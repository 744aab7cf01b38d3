use super::*;

/// Of "secret".
const KINDS: [&str; 9] = [
    "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
    "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    "{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==",
    "{PLAIN}secret",
    "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
    "EnuvqQ//L/QrM",
    "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
    "$5$j9WSE7aKZb1J1zpx$DnBXJJ.KeqqdVOhctmmUqKiwe8HyGeZ6J5S0sfO9xd7",
    "$6$kLTXjkdWShulWghy$x5K54bE1mdUXApE5mDuYRolUJY.XINN5bdWO1Vk.uq6dAibWNnj8lHkwVEyMZQzY4R5wOqp.qh79AolC8Oaa61",
];

#[test]
fn every_kind_fits_its_password_and_no_other() {
    for hash in KINDS {
        assert!(is_known(hash), "{hash}");
        assert!(fits(b"secret", hash), "{hash}");
        for wrong in [&b"Secret"[..], b"secret ", b"", b"secre", b"secretsecretsecretsecret"] {
            assert!(!fits(wrong, hash), "{hash} and {wrong:?}");
        }
    }
}

#[test]
fn passwords_of_any_length_and_bytes() {
    // Made by Python's crypt module over the libc.
    let known: [(&[u8], &str); 6] = [
        (b"", "$1$saltsalt$5Jhcit4zN9UlGiA0txPkO0"),
        (b"", "abmF1QH4PEr.E"),
        ("p\u{e4}ssword".as_bytes(), "$1$saltsalt$QgbQ7EUpcKNQTLgSVL4qr/"),
        (b"a password that is a good deal longer than one block", "$1$saltsalt$FWuh1THrokV63BTNSxFPY0"),
        (b"12345678", "ab1iBa.N.U2C6"),
        (b"secret", "$5$rounds=1500$saltsalt$.QN5EFjREHzaSPVbD8IpSpN3dAhUi.iLmQ7MnxmN/hB"),
    ];
    for (password, hash) in known {
        assert!(fits(password, hash), "{hash} and {password:?}");
    }
    assert!(fits(b"12345678 and more", "ab1iBa.N.U2C6"), "DES looks at eight bytes");
}

#[test]
fn nothing_fits_what_is_no_hash() {
    let broken = [
        "",
        "secret",
        "{MD5}secret",
        "{SHA}",
        "{SHA}not base64!",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ",
        "{SSHA}AAAA",
        "$2y$05$short",
        "$2y$\u{e4}",
        "$2y$99$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$5$",
        "$6$rounds=4294967295$salt$x",
        "$6$rounds=x$salt$x",
        "$7$abc",
        "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA",
        "\u{e4}bcdefghijkl",
        "*",
        "!",
    ];
    for hash in broken {
        for password in [&b""[..], b"secret", hash.as_bytes()] {
            assert!(!fits(password, hash), "{hash} and {password:?}");
        }
    }
}

#[test]
fn a_hash_that_takes_too_long_is_refused_at_once() {
    assert!(!is_known("$2y$15$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"));
    assert!(is_known("$2y$14$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"));
    assert!(!is_known("$6$rounds=500001$saltsalt$x"));
}
