//! The size of each pattern of `server-alias`, computed once: making the automaton takes long compared to everything
//! else that is done with an Ingress, and the same text is looked at whenever its Ingress is read, compiled or reviewed.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use shared::pattern::{HostPattern, PatternError};

/// Number of texts that are remembered.
const KEPT: usize = 1_024;

type Sizes = HashMap<Box<str>, Result<usize, PatternError>>;

/// Memory in bytes that a pattern takes in each proxy.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn size(text: &str) -> Result<usize, PatternError> {
    if let Some(known) = remembered().get(text) {
        return known.clone();
    }
    let size = HostPattern::new(text).map(|it| it.bytes());
    if !matches!(size, Err(PatternError::Long { .. })) {
        let mut sizes = remembered();
        if sizes.len() >= KEPT {
            sizes.clear();
        }
        sizes.insert(text.into(), size.clone());
    }
    size
}

fn remembered() -> MutexGuard<'static, Sizes> {
    static SIZES: LazyLock<Mutex<Sizes>> = LazyLock::new(Mutex::default);
    // What is in it is complete at any time.
    SIZES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_remembered_and_few() {
        for text in (0..2 * KEPT).map(|number| format!("^a{number}\\.test$")) {
            assert_eq!(size(&text), HostPattern::new(&text).map(|it| it.bytes()));
            assert_eq!(size(&text), HostPattern::new(&text).map(|it| it.bytes()), "remembered");
        }
        assert!(size("(").is_err() && size("(").is_err());
        assert!(size(&"a".repeat(5_000)).is_err());
        let sizes = remembered();
        assert!(sizes.len() <= KEPT && sizes.keys().all(|text| text.len() < 5_000));
    }
}
