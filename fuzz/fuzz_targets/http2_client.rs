//! See `data_plane::fuzz::http2_client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::http2_client(data));
