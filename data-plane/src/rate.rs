//! Counting clients: requests a second or a minute, requests in progress (annotations.md 6.10), and wrong passwords.
//!
//! As ingress-nginx' zones: one table for each limit of an Ingress, of a bounded size, shared by all workers, a proxy's own.
//! A table is pages of atomics, made when a client first falls into one, and searched a group at a time.
//!
//! **Invariant:** no lock and, but for the first visit of a page, no allocation on the way of a request. Who has no room left
//! is forgotten, the one longest away first, where requests are counted; refused, where connections are.

mod connections;
mod counts;
mod requests;
mod slots;
mod tries;

pub use self::connections::{ConnectionTable, Permit};
pub use self::counts::Counts;
pub use self::requests::{Rate, RequestTable};
pub use self::tries::TryTable;
