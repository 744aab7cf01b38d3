//! Writes the frames of an HTTP/2 connection to its stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::codec::h2::{Connection, Role, SLICES};

/// How far that has come.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    sent: u64,
    /// Whether something is written that may be in a buffer of the stream.
    is_unflushed: bool,
}

impl FrameWriter {
    /// Bytes that the stream has taken.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Writes what there is. Pending: the stream does not take the next bytes.
    pub(crate) fn poll<R: Role>(
        &mut self,
        connection: &mut Connection<R>,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !connection.is_written() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = connection.slices(&mut slices);
            match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => {
                    connection.wrote(bytes);
                    self.sent += bytes as u64;
                    self.is_unflushed = true;
                }
            }
        }
        if self.is_unflushed {
            // TLS may have accepted what the socket does not; once that is flushed the peer reads again, even if nothing
            // is written until a stream learns of it.
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}
