//! A second, slow and simple request parser that shares no code with the codec.

use std::collections::HashSet;

use proptest::prelude::*;

use super::messages::request;
use super::{Seen, requests};

const TOKEN: &str = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const GONE: [&str; 11] = [
    "connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
    "proxy",
    "expect",
    "",
];

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| TOKEN.contains(c))
}

fn is_text(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (c >= ' ' && c != '\u{7f}'))
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    let name_is_fine = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+;=".contains(c));
    !name.is_empty() && name_is_fine && port.parse::<u16>().is_ok()
}

/// Parses one complete request; `None` if it must be refused or is incomplete.
fn read(bytes: &[u8]) -> Option<Seen> {
    let whole: String = bytes.iter().map(|&b| char::from(b)).collect();
    let (head, rest) = whole.split_once("\r\n\r\n")?;
    if head.replace("\r\n", "").contains(['\r', '\n']) {
        return None;
    }
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next()?.split(' ').collect();
    let [method, target, version] = words[..] else {
        return None;
    };
    if method.is_empty() || !method.chars().all(|c| c.is_ascii_uppercase() || c == '-' || c == '_') {
        return None;
    }
    if ["TRACE", "CONNECT"].contains(&method) || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return None;
    }
    if target.chars().any(|c| c <= ' ' || c == '\u{7f}' || c == '#') {
        return None;
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if !is_token(name) || !is_text(value) {
            return None;
        }
        fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    let all = |wanted: &str| -> Vec<String> {
        fields
            .iter()
            .filter(|(name, _)| name.to_lowercase() == wanted)
            .map(|(_, value)| value.clone())
            .collect()
    };
    let hosts = all("host");
    if hosts.len() > 1
        || (hosts.is_empty() && version == "HTTP/1.1")
        || !hosts.iter().all(|host| is_host(host))
    {
        return None;
    }
    if ["authorization", "expect"].iter().any(|name| all(name).len() > 1) {
        return None;
    }
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    let body = match (&lengths[..], &codings[..]) {
        ([], []) => String::new(),
        ([length], []) => {
            if length.is_empty() || length.len() > 19 || !length.chars().all(|c| c.is_ascii_digit()) {
                return None;
            }
            rest.get(..length.parse().ok()?)?.to_owned()
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && version == "HTTP/1.1" => unchunk(rest)?,
        _ => return None,
    };
    let lower = target.to_lowercase();
    let target = if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        target.to_owned()
    } else {
        let after = [8, 7]
            .into_iter()
            .find(|&n| ["http://", "https://"].contains(&lower.get(..n).unwrap_or_default()))?;
        let authority: String = target[after..].chars().take_while(|c| !"/?".contains(*c)).collect();
        if !is_host(&authority) {
            return None;
        }
        let path = &target[after + authority.len()..];
        if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
    };
    let named: HashSet<String> =
        all("connection").join(",").split(',').map(|option| option.trim().to_lowercase()).collect();
    let stays = |name: &str| {
        let lower = name.to_lowercase();
        let taken = named.contains(&lower) && lower == "x-one";
        !GONE.contains(&&lower[..]) && !taken && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let fields = fields.into_iter().filter(|(name, _)| stays(name)).collect();
    Some(Seen { method: method.to_owned(), target, fields, body: body.chars().map(|c| c as u8).collect() })
}

fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (line, after) = rest.split_once("\r\n")?;
        let (size, extensions) =
            line.split_at(line.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(line.len()));
        if size.is_empty() || size.len() > 16 || !["", ";a=b", " ;x=\"q\\\"\""].contains(&extensions) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = after;
        if size == 0 {
            break;
        }
        body.push_str(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix("\r\n")?;
    }
    loop {
        let (line, after) = rest.split_once("\r\n")?;
        if line.is_empty() {
            return Some(body);
        }
        let (name, value) = line.split_once(':')?;
        if !is_token(name) || !is_text(value) {
            return None;
        }
        rest = after;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn the_codec_reads_what_the_slow_reader_reads(bytes in request()) {
        let (fast, _) = requests([&bytes[..]]);
        let slow = read(&bytes);
        prop_assert_eq!(fast.first(), slow.as_ref());
    }
}
