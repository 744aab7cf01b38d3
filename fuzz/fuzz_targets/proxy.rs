//! See `control_plane::fuzz::proxy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| control_plane::fuzz::proxy(data));
