//! The last good state on disk: what the proxy has, so that it can start, and serve, without a control plane.
//!
//! The bytes are made and read without I/O ([`frame`], [`record`], [`replay`]). A thread of its own writes what the control
//! thread leaves in the [`slot`] ([`keeper`]).
//!
//! **Invariants:** nothing that serves, and not the control thread, ever waits for this; no private key is in the journal,
//! but in a folder in memory ([`keys`]) or nowhere.

mod frame;
pub(crate) mod fuzz;
mod keeper;
mod keys;
mod lock;
mod log;
mod record;
mod replay;
mod slot;
mod state;
mod stats;
