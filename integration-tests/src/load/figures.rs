//! Measured times, and their statistics.

use std::time::Duration;

use serde_json::{Value, json};

/// Times that were measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    times: Vec<Duration>,
}

impl Figures {
    /// One more.
    pub fn note(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// The least time that so large a part of them, from 0 to 1, does not exceed; `None` if there is none.
    pub fn part(&self, part: f64) -> Option<Duration> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let place = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(place.saturating_sub(1)).copied()
    }

    /// For people: median, 99th of a hundred, most.
    pub fn text(&self) -> String {
        let [p50, p99, most] =
            [0.5, 0.99, 1.0].map(|part| self.part(part).map_or_else(|| "-".to_owned(), millis));
        format!("p50 {p50}, p99 {p99}, most {most} ({})", self.count())
    }

    /// For programs, in milliseconds.
    pub fn json(&self) -> Value {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| self.part(part).map(|it| it.as_secs_f64() * 1e3));
        json!({"count": self.count(), "p50_ms": p50, "p99_ms": p99, "max_ms": most})
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_what_was_noted() {
        let mut figures = Figures::default();
        assert_eq!((figures.part(0.5), figures.text()), (None, "p50 -, p99 -, most - (0)".to_owned()));
        (1..=100).rev().for_each(|millis| figures.note(Duration::from_millis(millis)));
        assert_eq!(figures.part(0.5), Some(Duration::from_millis(50)));
        assert_eq!(figures.part(0.99), Some(Duration::from_millis(99)));
        assert_eq!(figures.part(1.0), Some(Duration::from_millis(100)));
        assert_eq!(figures.json()["p99_ms"], 99.0);
    }
}
