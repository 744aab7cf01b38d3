//! See `data_plane::fuzz::resources`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::resources(data));
