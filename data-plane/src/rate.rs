//! Counts per client: requests per second or minute, requests in progress (as in ingress-nginx), and wrong passwords.
//!
//! Like ingress-nginx' zones: one table of bounded size per limit and Ingress, shared by all workers of a proxy. A
//! table consists of pages of atomics that are allocated when a client first needs them, and is searched a group at a
//! time.
//!
//! **Invariant:** no lock and, except for the first use of a page, no allocation on the request path. When there is no
//! room left, the client that was idle longest is forgotten where requests are counted; where connections are counted,
//! the new one is refused.

mod connections;
mod counts;
mod requests;
mod slots;
mod tries;

pub use self::connections::{ConnectionTable, Permit};
pub use self::counts::Counts;
pub use self::requests::{Rate, RequestTable};
pub use self::tries::TryTable;
