//! Carries frames that are encoded already: what streams share is copied to the socket, never encoded again.

use bytes::BufMut as _;
use prost::Message as _;
use shared::proto::config::ProxyMessage;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::store::Frame;

/// gRPC codec of `ConfigStream`: messages in, frames out.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = ProxyMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
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

impl Decoder for FrameCodec {
    type Item = ProxyMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ProxyMessage>, Status> {
        match ProxyMessage::decode(bytes) {
            Ok(message) => Ok(Some(message)),
            Err(error) => Err(Status::invalid_argument(format!("no proxy message: {error}"))),
        }
    }
}
