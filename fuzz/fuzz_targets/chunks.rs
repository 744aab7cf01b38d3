//! See `data_plane::fuzz::chunks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::chunks(data));
