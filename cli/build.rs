//! Generates the client of `firth.inspect.v1` without an installed protoc; its messages are those of `shared`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let descriptors = protox::compile(["firth/inspect/v1/inspect.proto"], ["../proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".firth.inspect.v1", "::shared::proto::inspect")
        .compile_fds(descriptors)?;
    Ok(())
}
