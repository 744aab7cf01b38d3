//! See `data_plane::fuzz::ocsp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::ocsp(data));
