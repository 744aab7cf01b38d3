//! How far a response is read ahead of its client (nginx' `proxy_buffering`, `proxy_buffers` and
//! `proxy_max_temp_file_size`).

use shared::policy::LocationPolicy;

/// ingress-nginx' defaults: the size of a buffer, their number, and the limit of the file.
const BUFFER: u64 = 4 * 1024;
const BUFFERS: u64 = 4;
const FILE: u64 = 1 << 30;

/// nginx refuses to start with fewer buffers.
const LEAST: u64 = 2;

/// What may be read before the client takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadAhead {
    /// Whether anything is, unless the backend says otherwise.
    pub is_on: bool,
    /// Bytes in memory.
    pub memory: usize,
    /// Bytes in a file beyond that; 0: none.
    pub file: u64,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self::compile(&LocationPolicy::default())
    }
}

impl ReadAhead {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        let number = configured.proxy_buffers_number.map_or(BUFFERS, u64::from).max(LEAST);
        let memory = number.saturating_mul(configured.proxy_buffer_size.unwrap_or(BUFFER));
        Self {
            is_on: configured.proxy_buffering.unwrap_or_default(),
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
            file: configured.proxy_max_temp_file_size.unwrap_or(FILE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_ahead_unless_it_is_asked_for() {
        assert_eq!(ReadAhead::default(), ReadAhead { is_on: false, memory: 16 * 1024, file: 1 << 30 });
        let configured = LocationPolicy {
            proxy_buffering: Some(true),
            proxy_buffer_size: Some(8 * 1024),
            proxy_buffers_number: Some(3),
            proxy_max_temp_file_size: Some(0),
            ..LocationPolicy::default()
        };
        assert_eq!(ReadAhead::compile(&configured), ReadAhead { is_on: true, memory: 24 * 1024, file: 0 });
        let few = LocationPolicy { proxy_buffers_number: Some(0), ..LocationPolicy::default() };
        assert_eq!(ReadAhead::compile(&few).memory, 8 * 1024);
        let most = LocationPolicy {
            proxy_buffers_number: Some(u32::MAX),
            proxy_buffer_size: Some(u64::MAX),
            ..LocationPolicy::default()
        };
        assert_eq!(ReadAhead::compile(&most).memory, usize::MAX);
    }
}
