//! Generated messages of `proto/`. Used only at the borders: `convert`, both ends of the stream, inspect, the CLI.

/// `firth.config.v1`: the stream and the bodies of resources.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
pub mod config {
    include!(concat!(env!("OUT_DIR"), "/firth.config.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/policies.rs"));
}

/// `firth.inspect.v1`: queries about versions and proxies.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
pub mod inspect {
    include!(concat!(env!("OUT_DIR"), "/firth.inspect.v1.rs"));
}

/// `firth.identity.v1`: certificates for clients.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
pub mod identity {
    include!(concat!(env!("OUT_DIR"), "/firth.identity.v1.rs"));
}

/// Encoded `FileDescriptorSet` of all packages, for gRPC reflection and for showing bodies as JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
