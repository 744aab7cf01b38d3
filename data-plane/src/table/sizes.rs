//! How much a request may send, and what becomes of it before an endpoint sees it.

/// Sizes of one request's body. They travel with it, for each location may have its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of the whole body; 0 for any number (proxy-body-size).
    pub body: u64,
    /// Bytes of it that are kept in memory; the rest goes to a file (client-body-buffer-size).
    pub buffer: usize,
    /// Whether it is read to its end before it is sent on, so that it has a length and can be sent again
    /// (proxy-request-buffering).
    pub buffering: bool,
    /// Bytes of the head of its answer (proxy-buffer-size).
    pub head: usize,
}

/// ingress-nginx' own, but for the memory: as much as is read at once.
impl Default for Sizes {
    fn default() -> Self {
        Self { body: 1 << 20, buffer: 16 * 1024, buffering: true, head: 4 * 1024 }
    }
}

impl Sizes {
    /// Whether a body of so many bytes is too long.
    pub fn exceeded(&self, length: u64) -> bool {
        self.body > 0 && length > self.body
    }
}
