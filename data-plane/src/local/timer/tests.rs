use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use super::*;

fn polled(timer: &Timer) -> bool {
    timer.poll_elapsed(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_deadline_is_never_early_and_a_tick_late_at_most() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let timer = timers.timer();
    timer.arm(Duration::from_secs(1));
    for (millis, over) in [(0, false), (999, false), (1000, false), (1100, true)] {
        timers.tick(start + Duration::from_millis(millis));
        assert_eq!(polled(&timer), over, "{millis}");
    }
    timer.disarm();
    assert!(!polled(&timer));
}

#[test]
fn a_bound_holds_however_often_a_deadline_is_set() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let timer = timers.timer();
    timer.bound(Duration::from_secs(3));
    for (millis, over) in [(0, false), (1500, false), (3000, false), (3100, true)] {
        timers.tick(start + Duration::from_millis(millis));
        timer.arm(Duration::from_secs(2));
        assert_eq!((polled(&timer), timer.is_over()), (over, over), "{millis}");
    }
    timer.bound(Duration::ZERO);
    timer.arm(Duration::from_secs(2));
    assert!(!polled(&timer) && !timer.is_over());
}

#[tokio::test]
async fn a_limit_ends_what_never_ends() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let timer = timers.timer();
    assert_eq!(timer.limit(Duration::from_secs(1), async { 3 }).await, Ok(3));
    let mut stuck = pin!(timer.limit(Duration::from_secs(1), std::future::pending::<()>()));
    assert!(futures::poll!(stuck.as_mut()).is_pending());
    timers.tick(start + Duration::from_secs(2));
    assert_eq!(futures::poll!(stuck.as_mut()), Poll::Ready(Err(Elapsed)));
}

#[test]
fn the_longest_idle_make_room() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let connections: Vec<Timer> = (0..5).map(|_| timers.timer()).collect();
    for (second, number) in [3, 1, 4, 0].into_iter().enumerate() {
        timers.tick(start + Duration::from_secs(second as u64));
        connections[number].idle(true);
        // If set twice, the first time counts.
        connections[3].idle(true);
    }
    connections[4].idle(false);
    assert_eq!(timers.shed(2, Duration::from_secs(4)), 0, "none has been so long without");
    assert_eq!(timers.shed(2, Duration::from_secs(1)), 2);
    let shed = || -> Vec<usize> { (0..5).filter(|number| polled(&connections[*number])).collect() };
    assert_eq!(shed(), [1, 3]);
    assert_eq!((timers.shed(2, Duration::ZERO), shed()), (1, vec![0, 1, 3]));
    assert_eq!(timers.shed(2, Duration::ZERO), 0, "nobody else is idle");
    // A request that arrived in time is served.
    connections[0].idle(false);
    assert_eq!(shed(), [1, 3]);
    // A client that just got a response is about to send another request.
    connections[0].rests();
    assert_eq!(timers.shed(2, Duration::ZERO), 0);
    timers.tick(start + Duration::from_secs(4));
    assert_eq!(timers.shed(2, Duration::ZERO), 1);
}

fn due(timers: &Timers, most: usize) -> Option<Vec<usize>> {
    match timers.poll_due(&mut Context::from_waker(Waker::noop()), most) {
        Poll::Ready(numbers) => Some(numbers),
        Poll::Pending => None,
    }
}

#[test]
fn parked_timer_is_due_when_its_task_would_be_woken() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let connections: Vec<Timer> = (0..4).map(|_| timers.timer()).collect();
    for (number, connection) in connections.iter().enumerate() {
        timers.tick(start + Duration::from_secs(number as u64));
        connection.idle(true);
        connection.arm_within(Duration::from_secs(1), Duration::from_secs(10));
    }
    timers.tick(start + Duration::from_secs(5));
    assert!(connections.iter().all(polled) && !connections.iter().any(Timer::has_to_end));
    assert_eq!(connections.iter().map(Timer::park).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // Not the deadline of its former task, but its bound.
    timers.tick(start + Duration::from_secs(6));
    assert_eq!(due(&timers, 8), None);
    timers.tick(start + Duration::from_millis(10_200));
    assert_eq!(due(&timers, 8), Some(vec![0]));
    assert!(connections[0].has_to_end());
    // Reported once, and the one that has been idle longest is closed first.
    assert_eq!((timers.shed(2, Duration::ZERO), due(&timers, 8)), (2, Some(vec![1])));
    assert!(connections[1].has_to_end() && !connections[2].has_to_end());
    connections[2].unpark();
    timers.enter(Phase::Leaving);
    assert_eq!(due(&timers, 8), None, "nobody has to end yet");
    timers.enter(Phase::Closing);
    assert_eq!(due(&timers, 8), Some(vec![3]), "who has a task again is woken as a task");
}

#[test]
fn those_that_are_due_come_in_portions() {
    let timers = Timers::new(shared::clock::now());
    let connections: Vec<Timer> = (0..5).map(|_| timers.timer()).collect();
    connections.iter().for_each(|connection| _ = connection.park());
    timers.enter(Phase::Closing);
    let portions = std::iter::from_fn(|| due(&timers, 2)).map(|portion| portion.len());
    assert_eq!(portions.collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn slots_are_used_again() {
    let timers = Timers::new(shared::clock::now());
    let first = timers.timer();
    first.arm(Duration::ZERO);
    let index = first.index;
    drop(first);
    let second = timers.timer();
    assert_eq!(second.index, index);
    assert!(!polled(&second));
    assert_eq!(timers.slots.borrow().len(), 1);
}

#[test]
fn who_asks_for_the_next_tick_is_woken_by_it_once() {
    let start = shared::clock::now();
    let timers = Timers::new(start);
    let timer = timers.timer();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    timer.arm(Duration::from_secs(60));
    let mut asked = None;
    assert!(timer.waits_for_tick(&mut asked) && timer.waits_for_tick(&mut asked));
    for (ticks, times) in [(1, 0), (2, 1), (3, 1)] {
        timers.tick(start + ticks * TICK);
        assert_eq!(woken.0.load(Relaxed), times, "{ticks}");
        assert!(!timer.waits_for_tick(&mut asked));
        // It waits only after the first of them.
        assert!(timer.poll_elapsed(&mut Context::from_waker(&waker)).is_pending());
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}
