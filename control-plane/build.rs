//! Generates the gRPC services. Their messages come from `shared`, which generates them once for everybody.
//!
//! `ConfigStream` is described by hand because its output is not a message but bytes that are encoded already: see
//! `src/serve/codec.rs`.

use tonic_build::manual;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let asked = ["firth/inspect/v1/inspect.proto", "firth/identity/v1/identity.proto"];
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".firth.inspect.v1", "::shared::proto::inspect")
        .extern_path(".firth.identity.v1", "::shared::proto::identity")
        .compile_fds(protox::compile(asked, ["../proto"])?)?;

    let connect = manual::Method::builder()
        .name("connect")
        .route_name("Connect")
        .comment("One proxy's subscription.")
        .input_type("::shared::proto::config::ProxyMessage")
        .output_type("crate::store::Frame")
        .codec_path("crate::serve::codec::FrameCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let stream = manual::Service::builder()
        .name("ConfigStream")
        .package("firth.config.v1")
        .comment("Hands out configuration.")
        .method(connect)
        .build();
    manual::Builder::new().build_client(false).compile(&[stream]);
    Ok(())
}
