//! The body of a page: whole, or made while it is sent.

use std::fmt;

use bytes::Bytes;

/// The body of a page.
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// Made piece by piece while it is sent: for pages whose length depends on the configuration or on clients, so that
    /// they are never in memory as a whole.
    Pieces(Box<dyn Pieces>),
}

/// Makes a body from its beginning to its end.
pub trait Pieces: Send + 'static {
    /// Appends what comes next, if only a line; `false`: that was all. Called on a thread that may block.
    fn append(&mut self, out: &mut String) -> bool;
}

impl Body {
    /// All of it, made now if it was not made yet.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Whole(whole) => whole,
            Self::Pieces(mut pieces) => {
                let mut text = String::new();
                while pieces.append(&mut text) {}
                text.into()
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => f.debug_tuple("Whole").field(whole).finish(),
            Self::Pieces(_) => f.write_str("Pieces"),
        }
    }
}
