//! The fuzz target bodies of the control plane: assertions that must hold for arbitrary bytes.
//!
//! `cargo test` runs each over its corpus and seeded mutations of it; libFuzzer runs it as long as wanted (`fuzz/`).
//! The bytes are a body's only input.

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
