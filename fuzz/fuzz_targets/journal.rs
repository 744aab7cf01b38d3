//! See `data_plane::fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| data_plane::fuzz::journal(data));
