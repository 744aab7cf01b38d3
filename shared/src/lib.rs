//! What both planes share: names, versions, resources, their encoding and digest, deltas, and the small services that
//! every process needs.
//!
//! **Invariant:** nothing here knows Kubernetes or serves users' traffic, and what one crate alone uses is in that crate.
//!
//! A resource is *typed* where it is compiled and used ([`resource`]) and *encoded* everywhere between ([`entry`]): the
//! bytes that the compiler made are hashed, stored, sent and hashed again, never encoded a second time. A [`snapshot`]
//! is a persistent set of encoded resources with a Merkle root; a [`delta`] leads from one to another.

pub mod address;
pub mod admin;
pub mod backoff;
pub mod batch;
pub mod budget;
pub mod clock;
pub mod convert;
pub mod delta;
pub mod drain;
pub mod duration;
pub mod entry;
pub mod few;
pub mod htpasswd;
pub mod identity;
pub mod kind;
pub mod lock;
pub mod log_format;
pub mod name;
pub mod pattern;
pub mod pem;
pub mod policy;
pub mod private;
pub mod proto;
pub mod resource;
pub mod rewrites;
pub mod schema;
pub mod secret;
pub mod snapshot;
pub mod socket;
pub mod telemetry;
pub mod template;
pub mod tls;
pub mod version;
