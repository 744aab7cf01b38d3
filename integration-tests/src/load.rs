//! Many proxies in one process: their own sessions over real connections, without tables and traffic. What a fleet costs a
//! control plane, and how soon it has a change, is measured with them; `firth-load` is the command line.
//!
//! One thread does it all: what these proxies take of a small machine, the control plane does not have.

pub mod dial;
pub mod editor;
pub mod edits;
pub mod figures;
pub mod fleet;
pub mod proxy;
pub mod replica;
pub mod report;
pub mod scale;
pub mod usage;
pub mod world;

pub use dial::{Dial, Way};
pub use editor::Editor;
pub use edits::Edits;
pub use figures::Figures;
pub use fleet::{Fleet, Plan};
pub use replica::Replica;
pub use scale::Scale;
