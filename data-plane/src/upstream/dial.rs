//! Connects to endpoints, even when the process is out of descriptors.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::time::Duration;

use crate::local::reserve::Reserve;

/// Pause before the next attempt if no descriptor is available.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects; if no descriptor is free, with a reserved one or else the first that becomes free. The caller limits the
/// time; `is_out` tells whether that was spent waiting for a descriptor.
///
/// # Errors
/// A connection error, except for lack of descriptors.
pub(crate) async fn dial<T, F: Future<Output = io::Result<T>>>(
    reserve: &Reserve,
    is_out: &Cell<bool>,
    connect: impl Fn() -> F,
    make_room: impl Fn() -> bool,
) -> io::Result<T> {
    loop {
        match connect().await {
            Err(error) if is_about_descriptors(&error) => {}
            done => return done,
        }
        if !reserve.lend() {
            is_out.set(true);
            // Another worker may take what becomes free here, and vice versa.
            let _ = make_room();
            let _waiting = reserve.wait();
            // Boxed: it is rare, and each request would have to reserve room for it.
            Box::pin(tokio::time::sleep(PAUSE)).await;
        }
    }
}

fn is_about_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let about = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| about.contains(&number))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    fn error(errno: rustix::io::Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_used_first_then_room_is_made_and_waited_for() {
        let (reserve, is_out) = (Reserve::of(32), Cell::new(false));
        let (tries, made) = (Cell::new(0), Cell::new(0));
        let connect = || {
            tries.set(tries.get() + 1);
            std::future::ready(match tries.get() {
                ..=5 => Err(error(rustix::io::Errno::MFILE)),
                _ => Ok(()),
            })
        };
        let mut dialing = pin!(dial(&reserve, &is_out, connect, || made.replace(made.get() + 1) == 0));
        assert!(poll!(&mut dialing).is_pending());
        assert_eq!((tries.get(), made.get(), is_out.get()), (3, 1, true), "two in reserve");
        assert!(reserve.is_short() && reserve.is_awaited());
        dialing.await.unwrap();
        assert_eq!((tries.get(), made.get()), (6, 3));
        assert!(!reserve.is_awaited());
    }

    #[tokio::test]
    async fn other_errors_are_the_caller_s() {
        let (reserve, is_out) = (Reserve::of(32), Cell::new(false));
        let refused = || std::future::ready(Err::<(), _>(error(rustix::io::Errno::CONNREFUSED)));
        dial(&reserve, &is_out, refused, || false).await.unwrap_err();
        assert!(!reserve.is_short() && !is_out.get());
    }
}
