//! Values of log variables that are known by the time the headers of a response are made, for headers that contain them
//! (as in nginx).

use shared::log_format::Value;

use super::RequestInfo;
use super::line::{each, number, of_attempts, time};
use crate::access_log::seconds;

/// The value of a variable in the headers of a response with this status; `None` if it has none by then.
pub(in crate::http::pipeline) fn value(info: &RequestInfo, status: u16, name: &str) -> Option<Vec<u8>> {
    let value = Some(Value::of(name)).filter(Value::is_known_with_headers)?;
    let (mut out, list) = (Vec::new(), info.attempts.list());
    match value {
        Value::Status => number(status.into(), &mut out),
        Value::RequestTime => {
            seconds(shared::clock::now().duration_since(info.started), &mut out);
            true
        }
        Value::Alternative => {
            out.extend_from_slice(info.alternative.as_deref().unwrap_or_default().as_bytes());
            true
        }
        // That of the response itself is not known before its end.
        Value::UpstreamTime => {
            each(list, &mut out, |it, out| time(Some(it.took).filter(|took| !took.is_zero()), out))
        }
        value => of_attempts(list, &value, &mut out),
    };
    Some(out)
}
