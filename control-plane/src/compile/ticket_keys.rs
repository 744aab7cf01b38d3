//! Session ticket keys: a configured one (`ssl-session-ticket-key`), or the generated ones in the fleet's record.
//!
//! **Invariant:** no part of a key gets into a fault.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use shared::resource::TicketKeys;
use shared::secret;
use zeroize::Zeroizing;

use crate::objects::Secret;
use crate::tickets::record::{RECORD, Record};

/// Sizes of a key that nginx accepts, in bytes: a name, an encryption key and a signing key (ngx_http_ssl_module).
const SIZES: [usize; 2] = [48, 80];

/// Parses a key of the ConfigMap.
///
/// # Errors
/// Why it is invalid: the fleet then uses generated keys, as ingress-nginx does.
pub fn configured(text: &str) -> Result<Bytes, &'static str> {
    let text = Zeroizing::new(text.split_ascii_whitespace().collect::<String>());
    let key = STANDARD.decode(text.as_bytes()).map(secret::kept).unwrap_or_default();
    match SIZES.contains(&key.len()) {
        true => Ok(key),
        false => Err("expected base64 of 48 or 80 bytes: generated keys are used instead"),
    }
}

/// The keys of the fleet's record; `None` if it is invalid, which the task that maintains the record reports and
/// repairs.
pub fn made(secret: &Secret) -> Option<TicketKeys> {
    let text = Zeroizing::new(STANDARD.decode(secret.data.get(RECORD)?).ok()?);
    Some(TicketKeys(Record::parse(&text).ok()?.keys().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_of_two_sizes() {
        for (size, is_one) in [(48, true), (80, true), (0, false), (32, false), (49, false)] {
            let text = STANDARD.encode(vec![7; size]);
            assert_eq!(configured(&text).is_ok(), is_one, "{size}");
            assert_eq!(configured(&format!(" {text}\n")).is_ok(), is_one, "lines are broken");
        }
        assert!(configured("hunter2!").is_err_and(|reason| !reason.contains("hunter")));
    }
}
