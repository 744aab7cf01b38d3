use std::time::Duration;

use super::*;

const NOW: f64 = 1_000.0;

fn at(seconds: f64) -> Moment {
    Moment::after_origin(Duration::from_secs_f64(seconds))
}

fn known(average: f64, ago: f64) -> Latency {
    let latency = Latency::default();
    latency.lend(average, at(NOW - ago));
    latency
}

fn is(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-15
}

#[test]
fn latency_average_is_weighted_by_elapsed_time() {
    for (average, ago, took, expected) in [
        (0.3, 5.0, 0.12, 0.22917551874827402),
        (0.2, 0.0, 5.0, 0.2),
        // The clock went backwards.
        (1.0, -3.0, 5.0, 1.0),
    ] {
        let latency = known(average, ago);
        latency.observe(Duration::from_secs_f64(took), at(NOW));
        assert!(is(latency.known().unwrap(), expected), "{average} {ago}: {latency:?}");
    }
    let first = Latency::default();
    assert_eq!((first.known(), first.score(at(NOW))), (None, 0.0));
    first.observe(Duration::from_millis(250), at(NOW));
    assert_eq!(first.known(), Some(0.25));
}

#[test]
fn latency_score_decays_over_time() {
    for (average, ago, expected) in
        [(0.2, 1.0, 0.18096748360719192), (0.3, 5.0, 0.18195919791379003), (1.2, 20.0, 0.16240233988393524)]
    {
        let latency = known(average, ago);
        assert!(is(latency.score(at(NOW)), expected), "{average} {ago}");
        assert_eq!(latency.known(), Some(average), "nothing is stored");
    }
}

#[test]
fn nothing_is_lent_to_who_has_something() {
    let latency = known(0.3, 5.0);
    latency.lend(7.0, at(NOW));
    assert_eq!(latency.known(), Some(0.3));
}

#[test]
fn a_time_that_never_comes_is_one_all_the_same() {
    for elapsed in [Duration::ZERO, Duration::MAX] {
        let latency = Latency::default();
        latency.lend(0.3, Moment::after_origin(elapsed));
        latency.observe(Duration::ZERO, Moment::after_origin(elapsed));
        assert_eq!(latency.known(), Some(0.3));
    }
}
