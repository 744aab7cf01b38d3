//! See `control_plane::fuzz::document`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| control_plane::fuzz::document(data));
