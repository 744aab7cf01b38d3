//! Listening addresses as flags accept them.

use std::net::SocketAddr;

/// Parses an IP address and a port.
///
/// # Errors
/// What was expected, and what was found.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected ADDRESS:PORT, such as 127.0.0.1:8080, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_needs_an_ip_and_a_port() {
        for text in ["127.0.0.1:0", "0.0.0.0:80", "[::1]:8443"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["", "80", ":80", "127.0.0.1", "localhost:80", "::1:80", "127.0.0.1:99999"] {
            assert!(parse(text).unwrap_err().contains("such as"), "{text}");
        }
    }
}
