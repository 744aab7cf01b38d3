//! Compiles `proto/` without an installed protoc. The messages are generated here, once; the crates that carry them
//! over gRPC generate their services and refer to these types.

use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

const FILES: [&str; 6] = [
    "firth/config/v1/stream.proto",
    "firth/config/v1/settings.proto",
    "firth/config/v1/route.proto",
    "firth/config/v1/backend.proto",
    "firth/config/v1/secret.proto",
    "firth/inspect/v1/inspect.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let descriptors = protox::compile(FILES, ["../proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new()
        .bytes(["."]) // bodies are shared, never copied
        .btree_map(["."]) // one order, so that equal means equal bytes
        .compile_fds(descriptors)?;
    Ok(())
}
