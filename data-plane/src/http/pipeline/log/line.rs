//! The values of log variables at the end of a request (as in ingress-nginx).

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use shared::log_format::Value;
use shared::telemetry::VERSION;

use super::attempts::Attempt;
use super::{InPlace, RequestRecord, basic};
use crate::access_log::{Captured, Source, seconds};
use crate::codec::head::Known;
use crate::http::facts;
use crate::http::pipeline::variables;
use crate::table::{DEFAULT_UPSTREAM, PathEntry};

/// A request that has ended.
pub(super) struct Ended<'a> {
    pub(super) record: &'a RequestRecord,
    pub(super) took: Duration,
}

impl Source for Ended<'_> {
    fn value(&self, value: &Value, out: &mut Vec<u8>) -> bool {
        let Self { record, took } = self;
        let info = &record.info;
        match value {
            Value::Status => number(info.status.into(), out),
            Value::BytesSent => number(info.head_sent + info.taken(), out),
            Value::BodyBytesSent => number(info.taken(), out),
            Value::RequestLength => number(record.received(), out),
            Value::RequestTime => {
                seconds(*took, out);
                true
            }
            Value::Completion => text(if info.completed { b"OK" } else { b"" }, out),
            Value::Pipe => text(b".", out),
            Value::Client => match info.client {
                Some(client) if client != record.peer.address().ip() => written(&client, out),
                _ => text(record.peer.address_text(), out),
            },
            Value::ClientBytes => match record.client().to_canonical() {
                IpAddr::V4(ip) => text(&ip.octets(), out),
                IpAddr::V6(ip) => text(&ip.octets(), out),
            },
            Value::Peer => text(record.peer.address_text(), out),
            Value::OfConnection(what) => facts::append(&record.peer, *what, out),
            Value::Http2 => text(record.http2(), out),
            Value::ConnectionRequests => number(info.place.into(), out),
            Value::RequestId => text(info.id(), out),
            Value::OwnId => text(info.own_id(&record.local.ids), out),
            Value::Hostname => text(variables::hostname().as_bytes(), out),
            Value::Pid => number(std::process::id().into(), out),
            Value::Version => text(VERSION.as_bytes(), out),
            Value::TraceParent => info.trace.as_ref().is_some_and(|it| text(it.parent().as_bytes(), out)),
            Value::TraceId => info.trace.as_ref().is_some_and(|it| text(it.trace().as_bytes(), out)),
            Value::SpanId => info.trace.as_ref().is_some_and(|it| text(it.span().as_bytes(), out)),
            Value::Missing => false,
            other => {
                self.of_head(other, out)
                    || self.of_location(other, out)
                    || of_attempts(info.attempts.list(), other, out)
            }
        }
    }

    fn captured(&self) -> &Captured {
        &self.record.info.captured
    }
}

impl Ended<'_> {
    fn of_head(&self, value: &Value, out: &mut Vec<u8>) -> bool {
        let Self { record, .. } = self;
        if let Value::User = value {
            let user = record.info.user.as_deref().map(std::borrow::Cow::Borrowed);
            let user = user.or_else(|| basic::user(record.head.as_deref()?).map(Into::into));
            return user.is_some_and(|user| text(&user, out));
        }
        let Some(head) = record.head.as_deref() else {
            let unread = record.unread.as_deref();
            return unread.is_some_and(|unread| match value {
                Value::Request => text(&unread.line, out),
                Value::Method => unread.method().is_some_and(|it| text(it, out)),
                Value::Host => unread.host_name().is_some_and(|it| text(&it, out)),
                Value::Referer => unread.referer.as_deref().is_some_and(|it| text(it, out)),
                Value::UserAgent => unread.agent.as_deref().is_some_and(|it| text(it, out)),
                _ => false,
            });
        };
        match value {
            Value::Request => {
                variables::first_line(head, out);
                true
            }
            Value::Method => text(head.method_bytes(), out),
            Value::RequestUri => text(head.asked_target(), out),
            Value::Args => head.query().is_some_and(|query| text(query, out)),
            Value::IsArgs => text(if head.query().is_some() { b"?" } else { b"" }, out),
            Value::Protocol => text(head.version.as_str().as_bytes(), out),
            Value::Host => text(head.host.name().as_bytes(), out),
            Value::Referer => head.fields.get(Known::Referer).is_some_and(|it| text(it, out)),
            Value::UserAgent => head.fields.get(Known::UserAgent).is_some_and(|it| text(it, out)),
            Value::Argument(name) => variables::argument(head, name).is_some_and(|it| text(it, out)),
            _ => false,
        }
    }

    fn of_location(&self, value: &Value, out: &mut Vec<u8>) -> bool {
        let Self { record, .. } = self;
        let location: Option<&PathEntry> = record.location.last();
        // As in ingress-nginx: a path that was not declared is logged under an Ingress of the host, without a Service.
        let unclaimed = record.info.unclaimed.as_deref().filter(|_| record.info.default_backend);
        let ingress = || match unclaimed {
            Some(place) => place.ingress(),
            None => location.and_then(|it| it.owner().split_once('/')).unwrap_or_default(),
        };
        let declared = location.filter(|_| unclaimed.is_none());
        let of = |which: fn(&PathEntry) -> &str| declared.map_or("", which).as_bytes();
        match value {
            Value::Upstream => match (location, record.info.in_place) {
                (Some(location), InPlace::Nobody) => {
                    location.upstream_name().write(out);
                    true
                }
                (Some(location), place) => match location.errors().filter(|_| place == InPlace::Errors) {
                    Some(errors) => written(&errors.cell.name_in_place(), out),
                    None => text(DEFAULT_UPSTREAM.as_bytes(), out),
                },
                (None, _) => record.info.default_backend && text(DEFAULT_UPSTREAM.as_bytes(), out),
            },
            Value::Alternative => {
                text(record.info.alternative.as_deref().unwrap_or_default().as_bytes(), out)
            }
            Value::Namespace => text(ingress().0.as_bytes(), out),
            Value::Ingress => text(ingress().1.as_bytes(), out),
            Value::Service => text(of(PathEntry::service), out),
            Value::ServicePort => text(of(PathEntry::port), out),
            Value::LocationPath => {
                text(unclaimed.map_or_else(|| of(PathEntry::declared), |it| it.path().as_bytes()), out)
            }
            Value::ServerName => {
                let host =
                    || declared.and_then(|it| it.route().rsplit_once('/')).map_or("_", |(_, host)| host);
                text(unclaimed.map_or_else(host, |it| it.host()).as_bytes(), out)
            }
            _ => false,
        }
    }
}

/// A value for each attempt.
pub(super) fn of_attempts(list: &[Attempt], value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::UpstreamAddr => each(list, out, |it, out| written(&it.address, out)),
        Value::UpstreamStatus => {
            each(list, out, |it, out| count((it.status != 0).then(|| it.status.into()), out))
        }
        Value::UpstreamLength => each(list, out, |it, out| number(it.length, out)),
        Value::UpstreamSent => each(list, out, |it, out| count(it.bytes(|it| &it.sent), out)),
        Value::UpstreamReceived => each(list, out, |it, out| count(it.bytes(|it| &it.received), out)),
        Value::UpstreamTime => each(list, out, |it, out| time(Some(it.took), out)),
        Value::UpstreamConnectTime => each(list, out, |it, out| time(it.connect, out)),
        Value::UpstreamHeaderTime => each(list, out, |it, out| time(it.header, out)),
        _ => false,
    }
}

fn text(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text);
    true
}

pub(super) fn number(number: u64, out: &mut Vec<u8>) -> bool {
    written(&number, out)
}

/// A dash stands for a number that is not known.
fn count(number: Option<u64>, out: &mut Vec<u8>) -> bool {
    match number {
        Some(number) => written(&number, out),
        None => text(b"-", out),
    }
}

fn written(it: &dyn std::fmt::Display, out: &mut Vec<u8>) -> bool {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{it}");
    true
}

/// A dash stands for a time that was not reached, also in a list.
pub(super) fn time(time: Option<Duration>, out: &mut Vec<u8>) -> bool {
    match time {
        Some(time) => seconds(time, out),
        None => out.push(b'-'),
    }
    true
}

/// Values of several attempts are separated by commas; those before and after an internal redirect by a colon.
pub(super) fn each(
    list: &[Attempt],
    out: &mut Vec<u8>,
    one: impl Fn(&Attempt, &mut Vec<u8>) -> bool,
) -> bool {
    for (place, attempt) in list.iter().enumerate() {
        if place > 0 {
            out.extend_from_slice(if attempt.stands_in { b" : " } else { b", " });
        }
        one(attempt, out);
    }
    !list.is_empty()
}
