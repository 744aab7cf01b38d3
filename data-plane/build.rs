//! Generates the clients of the stream and of certificates. Their messages are those of `shared`, which compiles them;
//! no installed protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let descriptors =
        protox::compile(["firth/config/v1/stream.proto", "firth/identity/v1/identity.proto"], ["../proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        // Its own `connect` would collide with the method of the service.
        .build_transport(false)
        .extern_path(".firth.config.v1", "::shared::proto::config")
        .extern_path(".firth.identity.v1", "::shared::proto::identity")
        .compile_fds(descriptors)?;
    Ok(())
}
