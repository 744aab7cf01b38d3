//! crypt(3)'s `$1$`, and Apache's `$apr1$`, which differs only in its name.

use md5::{Digest as _, Md5};

use shared::htpasswd::DIGITS;

/// Maximum length of the salt in bytes; more is ignored.
const SALT: usize = 8;
const ROUNDS: usize = 1000;
/// Which bytes of the digest form four digits, the most significant first.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The hash of `password` with the type and salt of `like`, as it would be in a file.
pub(super) fn hash(password: &[u8], like: &str) -> String {
    let magic = if like.starts_with("$apr1$") { "$apr1$" } else { "$1$" };
    let salt = like[magic.len()..].split('$').next().unwrap_or_default().as_bytes();
    let salt = &salt[..salt.len().min(SALT)];
    let digest = encode(&digest(password, magic.as_bytes(), salt));
    format!("{magic}{}${digest}", String::from_utf8_lossy(salt))
}

fn digest(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner = md5(&[password, salt, password]);
    let mut outer = Md5::new();
    outer.update(password);
    outer.update(magic);
    outer.update(salt);
    for chunk in password.chunks(inner.len()) {
        outer.update(&inner[..chunk.len()]);
    }
    // A zero for each set bit of the length, the password's first byte for the others.
    let mut length = password.len();
    while length > 0 {
        outer.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut digest: [u8; 16] = outer.finalize().into();
    for round in 0..ROUNDS {
        let (first, last) = if round % 2 == 1 { (password, &digest[..]) } else { (&digest[..], password) };
        let salt = if round % 3 == 0 { &[] } else { salt };
        let again = if round % 7 == 0 { &[] } else { password };
        digest = md5(&[first, salt, again, last]);
    }
    digest
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().into()
}

fn encode(digest: &[u8; 16]) -> String {
    let mut text = String::with_capacity(22);
    let mut push = |mut value: u32, digits: usize| {
        for _ in 0..digits {
            text.push(char::from(DIGITS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for group in GROUPS {
        let bytes = group.map(|i| u32::from(digest[i]));
        push(bytes[0] << 16 | bytes[1] << 8 | bytes[2], 4);
    }
    push(u32::from(digest[11]), 2);
    text
}
