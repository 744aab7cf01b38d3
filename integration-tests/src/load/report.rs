//! The report of a benchmark: phases, lines of figures, each with its goal.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::figures::Figures;

/// What a goal bounds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Goal {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th of a hundred.
    pub p99: Option<f64>,
    /// All of them, or the one figure there is.
    pub max: Option<f64>,
}

impl Goal {
    /// Of a single figure, or of the largest.
    pub fn most(max: f64) -> Option<Self> {
        Some(Self { max: Some(max), ..Self::default() })
    }

    /// Of the 99th of a hundred.
    pub fn p99(p99: f64) -> Option<Self> {
        Some(Self { p99: Some(p99), ..Self::default() })
    }

    /// Of the median, and of the 99th of a hundred.
    pub fn both(p50: f64, p99: f64) -> Option<Self> {
        Some(Self { p50: Some(p50), ..Self::p99(p99)? })
    }

    fn parts(&self) -> [(&'static str, Option<f64>); 3] {
        [("p50", self.p50), ("p99", self.p99), ("max", self.max)]
    }
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
enum Found {
    /// p50, p99, max of so many.
    Many([Option<f64>; 3], usize),
    One(Option<f64>),
    Counts(BTreeMap<String, u64>),
}

/// One line.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    what: &'static str,
    unit: &'static str,
    found: Found,
    goal: Option<Goal>,
}

impl Line {
    /// Parts of the goal and what was found of each.
    fn judged(&self) -> impl Iterator<Item = (&'static str, f64, Option<f64>)> {
        let found = match &self.found {
            Found::Many(found, _) => *found,
            Found::One(found) => [*found; 3],
            Found::Counts(_) => [None; 3],
        };
        let parts = self.goal.unwrap_or_default().parts().into_iter().zip(found);
        parts.filter_map(|((name, goal), found)| Some((name, goal?, found)))
    }

    /// Whether the goal is met; `None`: there is none, or nothing was found.
    fn is_met(&self) -> Option<bool> {
        let mut judged = self.judged().filter_map(|(_, goal, found)| Some(found? <= goal)).peekable();
        judged.peek()?;
        Some(judged.all(|is_met| is_met))
    }

    fn json(&self) -> Value {
        let mut line =
            Map::from_iter([("what".to_owned(), self.what.into()), ("unit".to_owned(), self.unit.into())]);
        match &self.found {
            Found::Many([p50, p99, max], count) => {
                line.extend(
                    [("p50", p50), ("p99", p99), ("max", max)].map(|(name, it)| (name.to_owned(), json!(it))),
                );
                line.insert("count".to_owned(), json!(count));
            }
            Found::One(found) => _ = line.insert("value".to_owned(), json!(found)),
            Found::Counts(counts) => _ = line.insert("counts".to_owned(), json!(counts)),
        }
        let goal: Map<_, _> = self.judged().map(|(name, goal, _)| (name.to_owned(), goal.into())).collect();
        if !goal.is_empty() {
            line.insert("goal".to_owned(), goal.into());
            line.insert("is_met".to_owned(), json!(self.is_met()));
        }
        line.into()
    }

    fn text(&self) -> String {
        let said = |found: &Option<f64>| found.map_or_else(|| "-".to_owned(), number);
        let found = match &self.found {
            Found::Many([p50, p99, max], count) => {
                format!("p50 {}, p99 {}, max {} {} ({count})", said(p50), said(p99), said(max), self.unit)
            }
            Found::One(found) => format!("{} {}", said(found), self.unit).trim_end().to_owned(),
            Found::Counts(counts) if counts.is_empty() => "none".to_owned(),
            Found::Counts(counts) => {
                let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
                counts.join(", ")
            }
        };
        let single = matches!(self.found, Found::One(_));
        let goals: Vec<_> = self
            .judged()
            .map(|(name, goal, _)| if single { number(goal) } else { format!("{name} {}", number(goal)) })
            .collect();
        let goal = match (goals.is_empty(), self.is_met()) {
            (true, _) => String::new(),
            (false, met) => {
                format!("  [{}{}]", goals.join(", "), if met == Some(false) { ": MISSED" } else { "" })
            }
        };
        let line = format!("  {:<44} {found}{goal}", self.what);
        format!("{}\n", line.trim_end())
    }
}

/// Three digits are enough, and none after the point where there are more before it.
fn number(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value.abs() >= 1_000.0 => format!("{value:.0}"),
        value if value.abs() >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// What one phase found.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    number: u8,
    name: &'static str,
    lines: Vec<Line>,
}

impl Phase {
    /// One that has found nothing yet.
    pub fn new(number: u8, name: &'static str) -> Self {
        Self { number, name, lines: Vec::new() }
    }

    /// Times, in milliseconds.
    pub fn times(&mut self, what: &'static str, times: &Figures, goal: Option<Goal>) {
        let parts = [0.5, 0.99, 1.0].map(|part| times.part(part).map(|it| it.as_secs_f64() * 1e3));
        self.lines.push(Line { what, unit: "ms", found: Found::Many(parts, times.count()), goal });
    }

    /// One figure; `None` if there was nothing to measure.
    pub fn one(
        &mut self,
        what: &'static str,
        unit: &'static str,
        value: impl Into<Option<f64>>,
        goal: Option<Goal>,
    ) {
        self.lines.push(Line { what, unit, found: Found::One(value.into()), goal });
    }

    /// How often what happened.
    pub fn counts(&mut self, what: &'static str, counts: BTreeMap<String, u64>) {
        self.lines.push(Line { what, unit: "", found: Found::Counts(counts), goal: None });
    }

    /// For people.
    pub fn text(&self) -> String {
        let lines: String = self.lines.iter().map(Line::text).collect();
        format!("{}. {}\n{lines}", self.number, self.name)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let lines: Vec<_> = self.lines.iter().map(Line::json).collect();
        json!({"phase": self.number, "name": self.name, "figures": lines})
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_goal_stands_beside_what_was_found() {
        let mut times = Figures::default();
        (1..=100).for_each(|millis| times.note(Duration::from_millis(millis)));
        let mut phase = Phase::new(3, "edits");
        phase.times("to the last", &times, Goal::both(50.0, 98.5));
        phase.one("cpu", "us", 24.125, Goal::most(25.0));
        phase.one("memory", "MiB", None, Goal::most(38.0));
        phase.counts("starts", BTreeMap::from([("live in_sync".to_owned(), 7)]));
        let text = phase.text();
        let expected = "\
3. edits
  to the last                                  p50 50, p99 99, max 100 ms (100)  [p50 50, p99 98.50: MISSED]
  cpu                                          24.12 us  [25]
  memory                                       - MiB  [38]
  starts                                       7 live in_sync
";
        assert_eq!(text, expected);
        let json = phase.json();
        let line = |at: usize| &json["figures"][at];
        assert_eq!(
            (&line(0)["p99"], &line(0)["goal"]["p99"], &line(0)["is_met"]),
            (&json!(99.0), &json!(98.5), &json!(false))
        );
        assert_eq!((&line(1)["value"], &line(1)["is_met"]), (&json!(24.125), &json!(true)));
        assert_eq!((&line(2)["value"], &line(2)["is_met"]), (&Value::Null, &Value::Null));
        assert_eq!(line(3)["counts"]["live in_sync"], 7);
    }
}
