//! The last good state on disk: what the proxy has, so that it can start, and serve, without a control plane.
//!
//! The bytes are made and read without I/O ([`frame`], [`record`], [`replay`]); files are appended to and written anew in
//! one place ([`log`]).
//!
//! **Invariant:** no private key is in the journal, but in a folder in memory ([`keys`]) or nowhere.

mod frame;
pub(crate) mod fuzz;
mod keys;
mod lock;
mod log;
mod record;
mod replay;
mod state;
