//! Futures that are created in their boxes.

use std::pin::Pin;

/// Boxes a future. `Box::pin` would copy it, with the room for everything that it is going to hold: kilobytes for the
/// future of a request.
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    // Allocated first, so that the optimizer can have the future made there.
    let room = Box::new_uninit();
    Box::into_pin(Box::write(room, make()))
}
