//! Deadlines of a worker's connections, checked by one coarse tick instead of a timer each.
//!
//! A task has one [`Timer`]. Setting a deadline is two stores: no allocation, no timer wheel, no system call. The tick
//! checks all deadlines, so they fire within [`TICK`], and never early.
//!
//! A connection that waits without a task is *parked*: instead of waking a task, its number is reported by
//! [`Timers::poll_due`].
//!
//! **Invariant:** a task waits for one deadline at a time; limits are not nested. A [bound](Timer::bound) around them
//! is not a separate limit: it only makes the others earlier.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shared::drain::Phase;

/// How often deadlines are checked, and the resolution of the clock.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How long an idle connection keeps its task.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// The deadline of a timer that is not armed.
const NEVER: u64 = u64::MAX;

/// The deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Elapsed;

/// The timers of a worker, its coarse clock, and its phase.
pub(crate) struct Timers {
    start: Instant,
    now: Cell<Instant>,
    /// The same in milliseconds after `start`, the unit of deadlines.
    millis: Cell<u64>,
    phase: Cell<Phase>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    due: RefCell<Due>,
    /// Those to wake with the next tick.
    checks: RefCell<Vec<Waker>>,
}

/// Numbers of parked connections whose task would have been woken, and the task that handles them.
#[derive(Default)]
struct Due {
    numbers: Vec<usize>,
    waker: Option<Waker>,
}

struct Slot {
    /// Milliseconds after `start`.
    deadline: u64,
    /// Upper bound for deadlines, likewise.
    bound: u64,
    /// Since when its connection has had no request, likewise; `NEVER` while it has one.
    idle: u64,
    /// Whether it has to be closed to make room.
    shed: bool,
    /// Whether it has no task, and was not reported as due.
    parked: bool,
    /// Whether its task is woken with the next tick, whatever the deadline.
    early: bool,
    waker: Option<Waker>,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            deadline: NEVER,
            bound: NEVER,
            idle: NEVER,
            shed: false,
            parked: false,
            early: false,
            waker: None,
        }
    }
}

impl Slot {
    fn wake(&mut self, number: usize, due: &mut Due) {
        if std::mem::take(&mut self.parked) {
            due.numbers.push(number);
            if let Some(waker) = due.waker.take() {
                waker.wake();
            }
        } else if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Timers {
    /// Without timers.
    pub(crate) fn new(now: Instant) -> Rc<Self> {
        Rc::new(Self {
            start: now,
            now: Cell::new(now),
            millis: Cell::new(0),
            phase: Cell::new(Phase::Serving),
            slots: RefCell::default(),
            free: RefCell::default(),
            due: RefCell::default(),
            checks: RefCell::default(),
        })
    }

    /// A timer for the calling task.
    pub(crate) fn timer(self: &Rc<Self>) -> Timer {
        let slot = Slot::default();
        let mut slots = self.slots.borrow_mut();
        let index = match self.free.borrow_mut().pop() {
            Some(index) => {
                slots[index] = slot;
                index
            }
            None => {
                slots.push(slot);
                slots.len() - 1
            }
        };
        Timer { timers: Rc::clone(self), index }
    }

    /// The time of the last tick.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// The shutdown phase of the process.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Enters a phase and wakes every task, so that idle connections can close. Parked connections are woken only from
    /// [`Phase::Closing`] on.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        let due = &mut *self.due.borrow_mut();
        for (number, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            if !slot.parked || phase >= Phase::Closing {
                slot.wake(number, due);
            }
        }
    }

    /// Advances the clock and wakes the tasks whose deadline has passed.
    pub(crate) fn tick(&self, now: Instant) {
        let millis = whole_millis(now.duration_since(self.start));
        self.now.set(now);
        self.millis.set(millis);
        let due = &mut *self.due.borrow_mut();
        for (number, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            if slot.deadline <= millis || (slot.early && slot.waker.is_some()) {
                slot.early = false;
                slot.wake(number, due);
            }
        }
        self.checks.take().into_iter().for_each(Waker::wake);
    }

    /// Wakes a task with the next tick, which may be too early for its deadline: it waits for something that wakes
    /// nobody. `asked`: when it last asked, which is enough once a tick.
    pub(crate) fn wake_at_tick(&self, asked: &mut Option<Instant>, waker: &Waker) {
        let now = self.now();
        if asked.replace(now) != Some(now) {
            self.checks.borrow_mut().push(waker.clone());
        }
    }

    /// Numbers of parked connections that need a task again, at most `most`. They may include some that have got a
    /// task, or ended, since they became due.
    pub(crate) fn poll_due(&self, cx: &mut Context<'_>, most: usize) -> Poll<Vec<usize>> {
        let due = &mut *self.due.borrow_mut();
        if due.numbers.is_empty() {
            // Frees the memory that many numbers needed.
            due.numbers.shrink_to(most);
            due.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let rest = due.numbers.len().saturating_sub(most);
        Poll::Ready(due.numbers.split_off(rest))
    }

    /// Closes the connections that have been idle for longest, at most `count`, and none that has been idle for less
    /// than `least`. Returns their number.
    pub(crate) fn shed(&self, count: usize, least: Duration) -> usize {
        let mut slots = self.slots.borrow_mut();
        let since = self.millis.get().checked_sub(whole_millis(least));
        let long = |slot: &Slot| since.is_some_and(|since| slot.idle <= since) && !slot.shed;
        let idle = slots.iter().enumerate().filter(|(_, slot)| long(slot));
        let mut idle: Vec<(u64, usize)> = idle.map(|(index, slot)| (slot.idle, index)).collect();
        if count < idle.len() {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        let due = &mut *self.due.borrow_mut();
        for (_, index) in &idle {
            let slot = &mut slots[*index];
            slot.shed = true;
            slot.wake(*index, due);
        }
        idle.len()
    }

    /// The time that is this much later than now, in milliseconds after `start`, rounded up.
    fn after(&self, later: Duration) -> u64 {
        let part = u64::from(later.subsec_nanos().div_ceil(1_000_000));
        later
            .as_secs()
            .saturating_mul(1_000)
            .saturating_add(part)
            .saturating_add(self.millis.get())
            .min(NEVER - 1)
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// The deadline of one task.
#[derive(Debug)]
pub(crate) struct Timer {
    timers: Rc<Timers>,
    index: usize,
}

impl Timer {
    /// The time of the last tick.
    pub(crate) fn now(&self) -> Instant {
        self.timers.now()
    }

    /// Sets the deadline, replacing the previous one.
    pub(crate) fn arm(&self, after: Duration) {
        // The clock may be a tick behind, and a deadline must not be early.
        let at = self.timers.after(after.saturating_add(TICK));
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        slot.deadline = at.min(slot.bound);
    }

    /// Sets a deadline and a bound: later deadlines set by [`Self::arm`] are limited by the bound.
    pub(crate) fn arm_within(&self, after: Duration, bound: Duration) {
        let [at, bound] = [after, bound].map(|it| self.timers.after(it.saturating_add(TICK)));
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        (slot.deadline, slot.bound) = (at.min(bound), bound);
    }

    /// Removes the deadline and the bound.
    pub(crate) fn free(&self) {
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        (slot.deadline, slot.bound) = (NEVER, NEVER);
    }

    /// Removes the deadline.
    pub(crate) fn disarm(&self) {
        self.timers.slots.borrow_mut()[self.index].deadline = NEVER;
    }

    /// Limits all deadlines that are set from now on; zero: unlimited.
    pub(crate) fn bound(&self, after: Duration) {
        self.timers.slots.borrow_mut()[self.index].bound = match after.is_zero() {
            true => NEVER,
            false => self.timers.after(after.saturating_add(TICK)),
        };
    }

    /// Whether the bound has been reached: then all waits fail.
    pub(crate) fn is_over(&self) -> bool {
        self.timers.slots.borrow()[self.index].bound <= self.timers.millis.get()
    }

    /// Whether waiting has to stop, because the bound was reached or room is needed.
    pub(crate) fn has_to_end(&self) -> bool {
        let slot = &self.timers.slots.borrow()[self.index];
        slot.shed || slot.bound <= self.timers.millis.get()
    }

    /// The connection continues without a task, up to its bound. Returns the number by which it will be reported as
    /// due.
    pub(crate) fn park(&self) -> usize {
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        (slot.deadline, slot.parked, slot.waker) = (slot.bound, true, None);
        self.index
    }

    /// It has a task again.
    pub(crate) fn unpark(&self) {
        self.timers.slots.borrow_mut()[self.index].parked = false;
    }

    /// Sets whether the task's connection has no request: then it may be closed to make room for another one.
    pub(crate) fn idle(&self, idle: bool) {
        self.idle_from(idle, Duration::ZERO);
    }

    /// The task's connection has served a request and waits for the next one. It is not closed for a short while,
    /// because the next request may be about to arrive, and the client would lose it.
    pub(crate) fn rests(&self) {
        self.idle_from(true, 2 * TICK);
    }

    fn idle_from(&self, idle: bool, delay: Duration) {
        let now = self.timers.after(delay);
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        match idle {
            true => slot.idle = slot.idle.min(now),
            false => (slot.idle, slot.shed) = (NEVER, false),
        }
    }

    /// Wakes the task with the next tick, which may be too early for its deadline, while it also waits for something
    /// that wakes nobody. Returns false once there was a tick since it first `asked`.
    pub(crate) fn waits_for_tick(&self, asked: &mut Option<Instant>) -> bool {
        let now = self.timers.now();
        let waits = *asked.get_or_insert(now) == now;
        self.timers.slots.borrow_mut()[self.index].early |= waits;
        waits
    }

    /// Ready when the deadline has passed; else the task is woken then, and when the worker enters another phase.
    pub(crate) fn poll_elapsed(&self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let now = self.timers.millis.get();
        let slot = &mut self.timers.slots.borrow_mut()[self.index];
        if slot.deadline <= now || slot.shed {
            return Poll::Ready(Elapsed);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Runs a future with a time limit.
    ///
    /// # Errors
    /// [`Elapsed`]; the future is dropped.
    pub(crate) async fn limit<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut armed = false;
        poll_fn(|cx| {
            // What completes at once needs no deadline.
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                if armed {
                    self.disarm();
                }
                return Poll::Ready(Ok(output));
            }
            if !armed {
                self.arm(limit);
                armed = true;
            }
            self.poll_elapsed(cx).map(|elapsed| {
                self.disarm();
                Err(elapsed)
            })
        })
        .await
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut slots = self.timers.slots.borrow_mut();
        slots[self.index] = Slot::default();
        self.timers.free.borrow_mut().push(self.index);
    }
}

#[cfg(test)]
mod tests;
