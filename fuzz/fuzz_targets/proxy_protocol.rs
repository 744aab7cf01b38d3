//! See `data_plane::fuzz::proxy_protocol`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::proxy_protocol(data));
