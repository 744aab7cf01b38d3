//! Reads a proxy's messages: counted and bounded before they are decoded.

use bytes::Buf as _;
use prost::Message as _;
use shared::proto::config::ProxyMessage;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};

use super::limits::Limits;
use super::shape;

/// Initial size of the read buffer in bytes: most messages are shorter.
const ROOM: usize = 512;

/// The reader of one stream.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The Hello was read.
    greeted: bool,
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
            Err(error) => Err(Status::invalid_argument(format!("malformed message from a proxy: {error}"))),
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        // The second value is for encoders.
        BufferSettings::new(ROOM, ROOM)
    }
}
