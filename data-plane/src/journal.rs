//! The last good state on disk: what the proxy has, so that it can start, and serve, without a control plane.
//!
//! The bytes are made and read without I/O ([`frame`], [`record`], [`replay`]).

mod frame;
pub(crate) mod fuzz;
mod record;
mod replay;
mod state;
