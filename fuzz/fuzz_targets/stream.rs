//! See `data_plane::fuzz::stream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::stream(data));
