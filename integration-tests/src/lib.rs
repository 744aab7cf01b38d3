//! The test harness that runs Firth's real binaries: a real API server, real proxies, origins that identify themselves,
//! clients that see every byte, and a relay that breaks connections.
//!
//! Each part owns its processes and ends them when it is dropped; [`process`] makes sure that they end with the test
//! run, however that ends. A failure is a panic with its reason, followed by the logs of all processes.
//!
//! **Invariant:** nothing that can be real is mocked, and nothing waits for a fixed time: [`mod@eventually`] polls
//! until a deadline.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails by panicking with what went wrong"
)]

pub mod addresses;
pub mod api;
pub mod assets;
pub mod attack;
pub mod cache;
pub mod cluster;
pub mod faults;
pub mod folder;
pub mod grpc;
pub mod grpcurl;
pub mod h2spec;
pub mod helm;
pub mod identity;
pub mod impostor;
pub mod ledger;
pub mod load;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod objects;
pub mod origin;
pub mod plane;
pub mod process;
pub mod site;
pub mod subscriber;
pub mod traffic;

pub use folder::Folder;
pub use ledger::Ledger;
pub use origin::Origin;
pub use plane::{ControlPlane, DataPlane, Source};
pub use site::{ClusterSite, FolderSite};
pub use test_kit::eventually::{self, eventually, eventually_within};
pub use test_kit::{client, ports};
pub use traffic::{Protocol, Question, Traffic};
