//! See `data_plane::fuzz::http2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::http2(data));
