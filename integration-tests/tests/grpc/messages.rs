//! The messages of gRPC's interop service (`grpc/testing/messages.proto`), as far as its cases use them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    #[prost(int32, tag = "1")]
    pub(crate) r#type: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EchoStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleRequest {
    #[prost(int32, tag = "2")]
    pub(crate) response_size: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    pub(crate) response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InputRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InputResponse {
    #[prost(int32, tag = "1")]
    pub(crate) aggregated_payload_size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Wanted {
    #[prost(int32, tag = "1")]
    pub(crate) size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OutputRequest {
    #[prost(message, repeated, tag = "2")]
    pub(crate) response_parameters: Vec<Wanted>,
    #[prost(message, optional, tag = "3")]
    pub(crate) payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    pub(crate) response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OutputResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) payload: Option<Payload>,
}

/// So many zeros.
pub(crate) fn payload(size: i32) -> Option<Payload> {
    let size = usize::try_from(size).expect("a size is not negative");
    Some(Payload { r#type: 0, body: vec![0; size] })
}

/// How many bytes it has.
pub(crate) fn size(payload: Option<&Payload>) -> i32 {
    payload.map_or(0, |payload| i32::try_from(payload.body.len()).expect("a size fits"))
}
