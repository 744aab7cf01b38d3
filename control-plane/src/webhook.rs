//! The validating admission webhook: API servers ask it, over HTTPS, what is to be said of an Ingress that somebody applies
//! (`--validating-webhook`). What is said is the index' matter.
//!
//! Whatever keeps us from an answer lets the Ingress pass, with a warning: what is wrong with it is found again when it is
//! read, and nobody's rollout waits for us.
//!
//! **Invariant:** what callers may hold is bounded in number, in bytes and in time (docs/adr/003-budgets.md), and nothing
//! that they send ends anything but their connection.

mod pair;
mod review;
