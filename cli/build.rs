//! Generates the clients of `firth.inspect.v1` and `firth.identity.v1` without an installed protoc; their messages are those of
//! `shared`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let descriptors = protox::compile(
        ["firth/inspect/v1/inspect.proto", "firth/identity/v1/identity.proto"],
        ["../proto"],
    )?;
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".firth.inspect.v1", "::shared::proto::inspect")
        .extern_path(".firth.identity.v1", "::shared::proto::identity")
        .compile_fds(descriptors)?;
    Ok(())
}
