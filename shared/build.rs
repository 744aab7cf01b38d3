//! Compiles `proto/` without an installed protoc. The messages are generated here, once; the crates that use them over
//! gRPC generate their services and refer to these types.
//!
//! Code that is derived from a message's fields is generated, too, see [`policies`].

use std::path::PathBuf;
use std::{env, fs};

use protox::Compiler;

#[path = "build/policies.rs"]
mod policies;

const FILES: [&str; 8] = [
    "firth/config/v1/stream.proto",
    "firth/config/v1/settings.proto",
    "firth/config/v1/route.proto",
    "firth/config/v1/backend.proto",
    "firth/config/v1/secret.proto",
    "firth/config/v1/policy.proto",
    "firth/inspect/v1/inspect.proto",
    "firth/identity/v1/identity.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto");
    let mut compiler = Compiler::new(["../proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Only this encoding keeps our own options; the types of `prost_types` drop them.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    fs::write(out.join("policies.rs"), policies::generate(&compiler.descriptor_pool())?)?;
    prost_build::Config::new()
        .bytes(["."]) // bodies are shared, never copied
        .btree_map(["."]) // one order, so that equal means equal bytes
        // prost omits these for messages that contain a list of messages, which might contain floating point.
        .type_attribute("firth.config.v1.CookieFlagsList", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.HeaderChangeList", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.HeaderList", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.LimitList", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.ExternalAuth", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.ErrorAnswer", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.ErrorAnswerList", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.SnippetVariables", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.SnippetVariable", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.SnippetValue", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.Substitutions", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.Shortcut", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.ShortcutBlock", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.Shortcuts", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.HostPolicy", "#[derive(Eq, Hash)]")
        .type_attribute("firth.config.v1.LocationPolicy", "#[derive(Eq, Hash)]")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
