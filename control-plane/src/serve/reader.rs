//! Carries frames that are encoded already: what streams share is copied to the socket, never encoded again.

use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use shared::proto::config::ProxyMessage;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::limits::Limits;
use super::shape;
use crate::store::Frame;

/// gRPC codec of `ConfigStream`: messages in, frames out. One for each stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCodec;

/// Reads what a proxy says.
#[derive(Debug, Default)]
pub struct Reader {
    /// The Hello was read.
    greeted: bool,
}

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = ProxyMessage;
    type Encoder = Self;
    type Decoder = Reader;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Reader {
        Reader::default()
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(frame.len());
        out.put_slice(frame.as_bytes());
        Ok(())
    }
}

impl Decoder for Reader {
    type Item = ProxyMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ProxyMessage>, Status> {
        let size = bytes.remaining();
        if !self.greeted && size > Limits::HELLO {
            return Err(Status::invalid_argument(format!(
                "expected a hello of at most {} bytes, got {size}",
                Limits::HELLO
            )));
        }
        let bytes = bytes.copy_to_bytes(size);
        shape::check(&bytes).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.greeted = true;
        match ProxyMessage::decode(bytes) {
            Ok(message) => Ok(Some(message)),
            Err(error) => Err(Status::invalid_argument(format!("no proxy message: {error}"))),
        }
    }
}
