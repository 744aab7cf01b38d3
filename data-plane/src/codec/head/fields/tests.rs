use super::*;
use crate::codec::guard::Limits;
use crate::codec::h1::RequestReader;
use crate::codec::head::OfVariable;

fn fields(lines: &str) -> Fields {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut buffer = BytesMut::from(text.as_bytes());
    let mut fields = RequestReader::new(Limits::REQUEST).feed(&mut buffer).unwrap().unwrap().fields;
    fields.remove(Known::Host);
    fields
}

fn lines(fields: &Fields) -> String {
    let mut out = Vec::new();
    fields.write(&mut out, |_| false);
    String::from_utf8(out).unwrap()
}

#[test]
fn reading_sees_edits() {
    let mut fields = fields("A: 1\r\nX-Forwarded-For: 9.9.9.9\r\na: 2\r\nB:  3\t\r\n");
    assert_eq!(fields.get("a"), Some(&b"1"[..]));
    assert_eq!(fields.all("A").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(fields.joined("a").unwrap(), &b"1, 2"[..]);
    assert_eq!(fields.joined("b").unwrap(), &b"3"[..]);
    assert_eq!(fields.joined("c"), None);
    assert_eq!(fields.get(Known::XForwardedFor), fields.get("x-forwarded-for"));
    fields.set(Known::XForwardedFor, "1.1.1.1");
    fields.append("A", "4");
    assert_eq!(fields.all("a").collect::<Vec<_>>(), [b"1", b"2", b"4"]);
    assert_eq!(fields.get_bytes(Known::XForwardedFor).unwrap(), &b"1.1.1.1"[..]);
    assert_eq!(fields.iter().count(), 5);
    fields.remove("a");
    assert_eq!(fields.iter().collect::<Vec<_>>(), [(&b"B"[..], &b"3"[..]), (b"X-Forwarded-For", b"1.1.1.1")]);
    assert_eq!(Fields::default().iter().count(), 0);
}

#[test]
fn cookies_are_joined_as_one_cookie() {
    let fields = fields("Cookie: a=1\r\nX-Cookie: 1\r\ncookie: b=2; c=3\r\nx-cookie: 2\r\n");
    for joined in [fields.joined(Known::Cookie), fields.joined("cookie"), fields.joined(OfVariable("cookie"))]
    {
        assert_eq!(joined.unwrap(), &b"a=1; b=2; c=3"[..]);
    }
    assert_eq!(fields.joined("x-cookie").unwrap(), &b"1, 2"[..]);
}

#[test]
fn what_was_asked_stays_known() {
    let mut fields =
        fields("X-A: 1\r\nConnection: x-a\r\nUpgrade: b\r\nx-a: 2\r\nCookie: c=1\r\nCookie: d=2\r\n");
    fields.remove_any(Known::HOP_BY_HOP | Known::Cookie.bit());
    fields.remove("x-a");
    fields.append("X-A", "ours");
    fields.add(Known::Upgrade, "ours");
    let asked = |name| fields.asked(OfVariable(name)).map(|value| String::from_utf8(value.to_vec()).unwrap());
    for (name, value) in [("x-a", "1, 2"), ("connection", "x-a"), ("upgrade", "b"), ("cookie", "c=1; d=2")] {
        assert_eq!(asked(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(asked("x-b"), None);
    assert_eq!(fields.asked(Known::Upgrade).unwrap(), &b"b"[..]);
    assert_eq!(fields.get("x-a"), Some(&b"ours"[..]));
}

#[test]
fn writing_copies_what_is_kept() {
    let all = "A: 1\r\nB:2\r\nC: \t3\r\nD:\r\nE: 5\r\n";
    assert_eq!(lines(&fields(all)), all);
    for (gone, left) in [
        ("a", "B:2\r\nC: \t3\r\nD:\r\nE: 5\r\n"),
        ("c", "A: 1\r\nB:2\r\nD:\r\nE: 5\r\n"),
        ("d", "A: 1\r\nB:2\r\nC: \t3\r\nE: 5\r\n"),
        ("e", "A: 1\r\nB:2\r\nC: \t3\r\nD:\r\n"),
    ] {
        let mut fields = fields(all);
        fields.remove(gone);
        assert_eq!(lines(&fields), left);
    }
}

#[test]
fn an_added_value_cannot_end_its_line() {
    let mut fields = Fields::default();
    fields.append("X", "a\r\nSet-Cookie: b\0\u{7f}");
    assert_eq!(lines(&fields), "X: a  Set-Cookie: b  \r\n");
}

#[test]
fn a_control_is_found_wherever_it_stands() {
    for (control, place) in (0..=255).flat_map(|b| (0..21).map(move |place| (b, place))) {
        for length in [place + 1, 21] {
            let mut value = vec![b'x'; length];
            value[place] = control;
            let mut harmless = value.clone();
            make_harmless(&mut harmless);
            value[place] = if guard::is_value_octet(control) { control } else { b' ' };
            assert_eq!(harmless, value, "{control} at {place} of {length}");
        }
    }
}
