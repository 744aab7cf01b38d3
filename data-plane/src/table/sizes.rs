//! How much a request may send, and whether it is buffered before an endpoint sees it.

/// Size limits of one request's body. They travel with the request, because each location may have its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of the whole body; 0 for unlimited (`proxy-body-size`).
    pub body: u64,
    /// Bytes that are kept in memory; the rest goes to a file (`client-body-buffer-size`).
    pub buffer: usize,
    /// Whether the body is read completely before it is sent on, so that it has a length and can be sent again
    /// (`proxy-request-buffering`).
    pub buffering: bool,
    /// Bytes of the response head (`proxy-buffer-size`).
    pub head: usize,
}

/// ingress-nginx' defaults, except for the memory: as much as one read.
impl Default for Sizes {
    fn default() -> Self {
        Self { body: 1 << 20, buffer: 16 * 1024, buffering: true, head: 4 * 1024 }
    }
}

impl Sizes {
    /// Whether a body of this length is too long.
    pub fn exceeded(&self, length: u64) -> bool {
        self.body > 0 && length > self.body
    }
}
