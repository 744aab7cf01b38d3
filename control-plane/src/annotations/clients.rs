//! Limits and timeouts of client connections. ConfigMap keys only.

use std::net::IpAddr;

use shared::policy::{Buffers, TextList};

use super::buffering::SOME;
use super::row::{Effect, Row, Spec};
use super::streams;
use super::value::{self, BOOL, Grammar, SECONDS, SIZE};

/// `bind-address`.
pub(crate) static BIND_ADDRESS: Row = Row {
    name: "bind-address",
    value: &Spec(
        LOCAL,
        Effect::Sets(|to, (values, left_out)| {
            to.leave_out("an IP address", left_out);
            to.location.bind_address = Some(TextList { values }).filter(|list| !list.values.is_empty());
        }),
    ),
    doc: "Addresses of the proxies that clients may connect to; those of one family do not restrict the other",
    ..Row::NEW
};

/// `bind-address-ipv4`. Its value is combined with that of `bind-address` where the settings are compiled.
pub(crate) static BIND_ADDRESS_IPV4: Row = Row {
    name: "bind-address-ipv4",
    value: &Spec(LOCAL_IPV4, Effect::Sets(|to, it| to.location.bind_address = Some(one(it)))),
    doc: "An address of the proxies that clients may connect to, in place of the first one of IPv4 in bind-address",
    ..Row::NEW
};

/// `bind-address-ipv6`.
pub(crate) static BIND_ADDRESS_IPV6: Row = Row {
    name: "bind-address-ipv6",
    value: &Spec(LOCAL_IPV6, Effect::Sets(|to, it| to.location.bind_address = Some(one(it)))),
    doc: "An address in brackets, in place of the first one of IPv6 in bind-address",
    ..Row::NEW
};

fn one(address: IpAddr) -> TextList {
    TextList { values: vec![address.to_string()] }
}

/// `disable-ipv6`.
pub(crate) static DISABLE_IPV6: Row = Row {
    name: "disable-ipv6",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.disable_ipv6 = Some(it))),
    default: "false",
    doc: "Clients may not connect to addresses of IPv6",
    harmless: true,
    ..Row::NEW
};

/// `disable-ipv6-dns`.
pub(crate) static DISABLE_IPV6_DNS: Row = Row {
    name: "disable-ipv6-dns",
    value: &Spec(BOOL, Effect::Unnoticed("addresses of IPv6 are only used of names that have none of IPv4")),
    doc: "Names are not looked up in IPv6",
    harmless: true,
    ..Row::NEW
};

/// `client-header-buffer-size`.
pub(crate) static CLIENT_HEADER_BUFFER_SIZE: Row = Row {
    name: "client-header-buffer-size",
    value: &Spec(SOME, Effect::Sets(|to, it| to.location.client_header_buffer_size = Some(it))),
    default: "1k",
    doc: "Limit for the first line of a request, if larger than one of large-client-header-buffers; at most 256k",
    ..Row::NEW
};

/// `client-header-timeout`.
pub(crate) static CLIENT_HEADER_TIMEOUT: Row = Row {
    name: "client-header-timeout",
    value: &Spec(SOME_SECONDS, Effect::Sets(|to, it| to.location.client_header_timeout = Some(it))),
    default: "10",
    doc: "Seconds for the whole head of a request",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `http2-max-concurrent-streams`.
pub(crate) static HTTP2_MAX_CONCURRENT_STREAMS: Row = Row {
    name: "http2-max-concurrent-streams",
    value: &Spec(STREAMS, Effect::Sets(|to, it| to.location.http2_max_concurrent_streams = Some(it))),
    default: "128",
    doc: "Concurrent requests per HTTP/2 connection; a change applies to new connections",
    go_number: true,
    ..Row::NEW
};

/// `proxy-protocol-header-timeout`.
pub(crate) static PROXY_PROTOCOL_HEADER_TIMEOUT: Row = Row {
    name: "proxy-protocol-header-timeout",
    value: &Spec(SPAN, Effect::Sets(|to, it| to.location.proxy_protocol_header_timeout = Some(it))),
    default: "5s",
    doc: "How long the header of the PROXY protocol may take",
    ..Row::NEW
};

/// `grpc-buffer-size-kb`.
pub(crate) static GRPC_BUFFER_SIZE_KB: Row = Row {
    name: "grpc-buffer-size-kb",
    value: &Spec(COUNT, Effect::Unnoticed("heads of gRPC answers have room for 64 kB, whatever it says")),
    default: "0",
    doc: "Memory for the head of a gRPC answer, in kilobytes",
    harmless: true,
    ..Row::NEW
};

/// `use-proxy-protocol`.
pub(crate) static USE_PROXY_PROTOCOL: Row = Row {
    name: "use-proxy-protocol",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_proxy_protocol = Some(it))),
    default: "false",
    doc: "Every connection for HTTP begins with a header of the PROXY protocol, version 1 or 2; peers in `proxy-real-ip-cidr` are believed the address in it",
    ..Row::NEW
};

/// `worker-shutdown-timeout`. nginx ends workers at each reload, too; here connections are only cut when a proxy shuts
/// down.
pub(crate) static WORKER_SHUTDOWN_TIMEOUT: Row = Row {
    name: "worker-shutdown-timeout",
    value: &Spec(
        streams::TIME,
        Effect::Differs {
            unless: |it| *it == 240_000,
            without: "what is open when a proxy ends is cut after the --drain-deadline of that proxy, and a change of configuration cuts nothing",
        },
    ),
    default: "240s",
    doc: "How long open connections may take when a worker ends",
    harmless: true,
    ..Row::NEW
};

/// `keep-alive`.
pub(crate) static KEEP_ALIVE: Row = Row {
    name: "keep-alive",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.keep_alive = Some(it))),
    default: "75",
    doc: "Seconds for which a connection is kept without a request; 0: it serves one",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `keep-alive-requests`.
pub(crate) static KEEP_ALIVE_REQUESTS: Row = Row {
    name: "keep-alive-requests",
    value: &Spec(COUNT, Effect::Sets(|to, it| to.location.keep_alive_requests = Some(it))),
    default: "1000",
    doc: "Requests that a connection serves",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `large-client-header-buffers`.
pub(crate) static LARGE_CLIENT_HEADER_BUFFERS: Row = Row {
    name: "large-client-header-buffers",
    value: &Spec(BUFFERS, Effect::Sets(|to, it| to.location.large_client_header_buffers = Some(it))),
    default: "4 8k",
    doc: "Number and size of buffers for the head of a request over HTTP/1.1, of which a line fills one at most; 256k in all",
    ..Row::NEW
};

/// Addresses of network interfaces, and what is none.
const LOCAL: Grammar<(Vec<String>, Vec<String>)> = Grammar {
    words: "IP addresses with commas between them",
    read: |text| {
        let items = value::list(text).map(str::to_owned);
        Some(items.partition(|item| item.parse::<IpAddr>().is_ok()))
    },
    good: &["10.0.0.1, fd00::1"],
    bad: &[],
};

/// As it stands before the port of nginx' `listen`, so that it is one only.
const LOCAL_IPV4: Grammar<IpAddr> = Grammar {
    words: "an IPv4 address",
    read: |text| text.parse().ok().map(IpAddr::V4),
    good: &["10.0.0.2"],
    bad: &["10.0.0.1,10.0.0.2", "fd00::1", "localhost"],
};

const LOCAL_IPV6: Grammar<IpAddr> = Grammar {
    words: "an IPv6 address in brackets",
    read: |text| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
    good: &["[fd00::2]"],
    bad: &["fd00::1", "[10.0.0.1]", "[fd00::1],[fd00::2]"],
};

/// A number.
const COUNT: Grammar<u32> = Grammar { words: "a number", ..SECONDS };

/// A number above 0: with 0 no requests would be served.
const STREAMS: Grammar<u32> = Grammar {
    words: "a number above 0",
    read: |text| (SECONDS.read)(text).filter(|streams| *streams > 0),
    good: &["128", "1"],
    bad: &["0", "-1", "many"],
};

/// A number of seconds above 0.
const SOME_SECONDS: Grammar<u32> = Grammar {
    words: "a number of seconds above 0, without a unit",
    read: |text| (SECONDS.read)(text).filter(|seconds| *seconds > 0),
    good: &["60", "1"],
    bad: &["0", "60s", "-1"],
};

/// A span as Go writes it: numbers with units, such as `1m30s` or `1.5s`; in milliseconds, rounded up.
const SPAN: Grammar<u32> = Grammar {
    words: "a span such as 5s, 1m30s or 500ms",
    read: |text| {
        let (mut nanoseconds, mut rest) = (0_u64, text.strip_prefix('+').unwrap_or(text));
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, behind) = rest.split_at(end);
            let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(end);
            nanoseconds = nanoseconds.checked_add(nanoseconds_of(number, unit)?)?;
            rest = behind;
        }
        u32::try_from(nanoseconds.div_ceil(1_000_000)).ok().filter(|span| *span > 0)
    },
    good: &["10s", "500ms", "1m", "1m30s", "1.5s"],
    bad: &["5", "s", "0s", "-5s", "5 s", "2000h", "1m30", ".s", "1.2.3s"],
};

/// A part of such a span.
fn nanoseconds_of(number: &str, unit: &str) -> Option<u64> {
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (mut part, mut digit) = (0, unit);
    for byte in fraction.bytes() {
        digit /= 10;
        part += digit * u64::from(char::from(byte).to_digit(10)?);
    }
    whole.checked_mul(unit)?.checked_add(part)
}

/// A number and a size, as nginx takes them.
const BUFFERS: Grammar<Buffers> = Grammar {
    words: "a number and a size with a space between them",
    read: |text| {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number > 0)?;
        let size = (SIZE.read)(words.next()?).filter(|size| *size > 0)?;
        words.next().is_none().then_some(Buffers { number, size })
    },
    good: &["4 8k", "8 32768", "2  1m"],
    bad: &["8k", "4", "0 8k", "4 0", "4 8k 1", "x 8k"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sums_of_parts() {
        for (text, expected) in [
            ("1m30s", Some(90_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("1.5s", Some(1_500)),
            (".25s", Some(250)),
            ("2.s", Some(2_000)),
            ("+5s", Some(5_000)),
            ("1us", Some(1)),
            ("1.5", None),
            ("1s-2s", None),
            ("1d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!((SPAN.read)(text), expected, "{text}");
        }
    }

    #[test]
    fn buffers_are_a_number_and_a_size() {
        let read = |text| (BUFFERS.read)(text).map(|it| (it.number, it.size));
        assert_eq!((read("4 32k"), read("2 100")), (Some((4, 32 << 10)), Some((2, 100))));
        assert_eq!((read("4 0k"), read("-1 8k"), read("4, 8k")), (None, None, None));
    }
}
