//! Compiles objects into resources: pure functions, one for each thing that is compiled.
//!
//! An Ingress becomes a [`claim::Claim`] on its own; which claim wins is decided host by host ([`host`]); Service
//! ports, slices, Secrets and the ConfigMap are compiled where they are needed. The index decides what is needed and
//! when.
//!
//! **Invariant:** the same input gives the same bytes. No clock, randomness, file, lock or memory of earlier input.
//! What is wrong with an object is a value ([`Fault`](crate::problem::Fault)), never an error of ours.

pub mod allowed;
pub mod backend;
pub mod certificate;
pub mod claim;
mod copies;
pub mod endpoints;
pub mod headers;
pub mod host;
pub mod material;
pub mod referred;
pub mod rejection;
pub mod route_size;
pub mod settings;
pub mod size;
pub mod snippets;
pub mod streams;
pub mod ticket_keys;
mod trust;
