use proptest::prelude::*;

use super::*;

fn decoded(source: &str, destination: &str) -> Option<Ends> {
    Some(Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
}

/// A header of version 2.
fn version_2(version: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version, family][..], &length, body].concat()
}

const IPV4: [u8; 12] = [192, 0, 2, 7, 192, 0, 2, 8, 0xdc, 0x04, 0x01, 0xbb];

#[test]
fn lines_tell_both_ends() {
    let longest = format!("PROXY TCP6 {0} {0} 65535 65535\r\n", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    for (line, ends) in [
        ("PROXY TCP4 192.0.2.7 192.0.2.8 56324 443\r\n", decoded("192.0.2.7:56324", "192.0.2.8:443")),
        ("PROXY TCP6 2001:db8::7 ::1 1 2\r\n", decoded("[2001:db8::7]:1", "[::1]:2")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN and whatever follows\r\n", None),
    ] {
        let header = Header { length: line.len(), ends };
        assert_eq!(parse(line.as_bytes()), Ok(Some(header)), "{line}");
        assert_eq!(parse(&[line.as_bytes(), b"GET / HTTP/1.1\r\n"].concat()), Ok(Some(header)), "{line}");
    }
    assert!(longest.len() <= LINE && parse(longest.as_bytes()).unwrap().unwrap().ends.is_some());
}

#[test]
fn invalid_proxy_header_line_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 192.0.2.8 56324\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 56324 443 1\r\n",
        "PROXY TCP4 192.0.2.7  192.0.2.8 56324 443\r\n",
        "PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.7 192.0.2.8 1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.8 1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 65536 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 +1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 1 \r\n",
        "PROXY tcp4 192.0.2.7 192.0.2.8 1 2\r\n",
        "PROXY UDP4 192.0.2.7 192.0.2.8 1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\n\r\n",
        "PROXY \r\n",
        "PROXY\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.8 1 \u{661}\r\n",
    ] {
        assert!(parse(line.as_bytes()).is_err(), "{line}");
    }
    assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), Err(NoHeader::Other));
    assert_eq!(parse(b"\x16\x03\x01"), Err(NoHeader::Other));
    assert_eq!(parse(b"proxy "), Err(NoHeader::Other));
}

#[test]
fn a_line_and_a_header_have_their_sizes_to_the_byte() {
    let line = |length: usize| [WORD, "UNKNOWN ".as_bytes(), &vec![b'x'; length - 16], b"\r\n"].concat();
    assert_eq!(parse(&line(LINE)).unwrap().unwrap().length, 107);
    assert_eq!(parse(&line(LINE + 1)), Err(NoHeader::LongLine));
    assert_eq!(parse(&line(LINE)[..LINE - 1]), Ok(None));
    let most = LONGEST - SIGNATURE.len() - 4;
    assert_eq!(parse(&version_2(0x20, 0, &vec![0; most])).unwrap().unwrap().length, 4096);
    // An oversized header is not waited for.
    let begun = version_2(0x20, 0, &vec![0; most + 1]);
    assert_eq!(parse(&begun[..16]), Err(NoHeader::Long));
}

#[test]
fn version_2_tells_both_ends() {
    let ends = decoded("192.0.2.7:56324", "192.0.2.8:443");
    let length = |body: &[u8]| 16 + body.len();
    assert_eq!(parse(&version_2(0x21, 0x11, &IPV4)), Ok(Some(Header { length: length(&IPV4), ends })));
    let with_more = [&IPV4[..], &[4, 0, 1, 0]].concat();
    assert_eq!(parse(&version_2(0x21, 0x11, &with_more)).unwrap(), Some(Header { length: 32, ends }));
    let mut ipv6 = [0; 36];
    (ipv6[15], ipv6[31], ipv6[33], ipv6[35]) = (7, 8, 1, 2);
    let header = parse(&version_2(0x21, 0x21, &ipv6)).unwrap().unwrap();
    assert_eq!(header.ends, decoded("[::7]:1", "[::8]:2"));
    // LOCAL, datagrams, UNIX sockets, and unknown families: the peer's own address is used.
    for (version, family) in [(0x20, 0x11), (0x21, 0x12), (0x21, 0x31), (0x21, 0x00), (0x2f, 0x11)] {
        let header = Header { length: 28, ends: None };
        assert_eq!(parse(&version_2(version, family, &IPV4)), Ok(Some(header)), "{version:x} {family:x}");
    }
    assert_eq!(parse(&version_2(0x11, 0x11, &IPV4)), Err(NoHeader::Version));
    assert_eq!(parse(&version_2(0x21, 0x11, &IPV4[..11])), Err(NoHeader::Short));
    assert_eq!(parse(&version_2(0x21, 0x21, &IPV4)), Err(NoHeader::Short));
}

proptest! {
    /// A header that arrives in parts is waited for, and then parsed like the whole.
    #[test]
    fn a_cut_header_is_waited_for(source: SocketAddr, destination: SocketAddr, after in prop::collection::vec(any::<u8>(), 0..20)) {
        let plain = |it: SocketAddr| SocketAddr::new(it.ip(), it.port());
        let said = line(Ends { source: plain(source), destination: plain(destination) });
        let whole = [said.as_bytes(), &after].concat();
        for cut in 0..said.len() {
            prop_assert_eq!(parse(&whole[..cut]), Ok(None));
        }
        let header = parse(&whole).unwrap().unwrap();
        let told = header.ends.unwrap();
        prop_assert_eq!(header.length, said.len());
        prop_assert_eq!(told.source.ip().to_canonical(), source.ip().to_canonical());
        prop_assert_eq!(told.destination.port(), destination.port());
    }
}
