//! Generates the gRPC services. Their messages come from `shared`, which generates them once for everybody.
//!
//! `ConfigStream` is not among them: its frames are encoded already, and go out as they are. See `src/serve/calls.rs`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let asked = ["firth/inspect/v1/inspect.proto", "firth/identity/v1/identity.proto"];
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".firth.inspect.v1", "::shared::proto::inspect")
        .extern_path(".firth.identity.v1", "::shared::proto::identity")
        .compile_fds(protox::compile(asked, ["../proto"])?)?;
    Ok(())
}
