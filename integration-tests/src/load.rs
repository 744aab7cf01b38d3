//! Many proxies in one process: their real sessions over real connections, without tables and traffic. They measure
//! what a fleet costs a control plane, and how fast changes reach it; `firth-load` is the command line.
//!
//! All of it runs on one thread: on a small machine, what these proxies use is not available to the control plane.

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
