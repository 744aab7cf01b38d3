//! See `control_plane::fuzz::watch_event`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| control_plane::fuzz::watch_event(data));
