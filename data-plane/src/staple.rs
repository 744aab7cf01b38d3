//! What authorities say of the certificates that are shown (OCSP), asked for beside the handshakes.

mod answer;
mod der;
mod fetch;
mod ledger;
mod places;
mod question;
#[cfg(test)]
mod tests;

/// A certificate, and what a responder says of it: neither is more than bytes, and nothing that nobody signed is believed.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz(data: &[u8]) {
    use answer::judge;
    use question::{Named, Question};

    let der = rustls_pki_types::CertificateDer::from(data.to_vec());
    let asked = Question::of(&[der.clone(), der.clone()]);
    let unasked = || Question::about(Named::default(), der);
    let question = asked.unwrap_or_else(unasked);
    assert!(judge(data, &question, 1_780_272_000).is_err());
}
