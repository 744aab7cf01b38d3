//! What must hold for any bytes at all: the bodies of the fuzz targets that the control plane owns.
//!
//! Each is run by `cargo test` over its corpus and seeded mutations of it, and by libFuzzer for as long as one likes
//! (`fuzz/`). A body asserts; what it takes is the bytes and nothing else.

pub use crate::kube::fuzz::watch_event;
pub use crate::manifests::fuzz::document;
pub use crate::serve::fuzz::proxy;

#[cfg(test)]
#[path = "../../fuzz/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use super::runner::run;

    #[test]
    fn any_watch_event() {
        run("watch_event", super::watch_event);
    }

    #[test]
    fn any_proxy() {
        run("proxy", super::proxy);
    }

    #[test]
    fn any_document() {
        run("document", super::document);
    }
}
