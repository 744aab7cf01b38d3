//! A page of metrics in parts, each begun when the one before it has been sent.

use std::collections::VecDeque;
use std::fmt::Write;

use shared::admin::Pieces;

use crate::metrics::{PREFIX, head};

/// Begins a part. What it holds to make its text is held from then to its end.
type Begin = Box<dyn FnOnce() -> Box<dyn Pieces> + Send>;

/// A page in parts.
#[derive(Default)]
pub(super) struct Scrape {
    parts: VecDeque<Begin>,
    current: Option<Box<dyn Pieces>>,
}

impl Scrape {
    /// Adds a part.
    #[must_use]
    pub(super) fn with<P: Pieces>(mut self, begin: impl FnOnce() -> P + Send + 'static) -> Self {
        self.parts.push_back(Box::new(|| Box::new(begin())));
        self
    }

    /// Adds a short text.
    #[must_use]
    pub(super) fn with_text(self, write: impl FnOnce(&mut String) + Send + 'static) -> Self {
        self.with(|| Text(Some(write)))
    }

    /// Adds a family with the samples of each item of a list.
    #[must_use]
    pub(super) fn with_samples<T: Send + 'static, S: IntoIterator<Item = Sample> + 'static>(
        self,
        (name, kind, help): (&'static str, &'static str, &'static str),
        items: impl FnOnce() -> Vec<T> + Send + 'static,
        samples: impl FnMut(T) -> S + Send + 'static,
    ) -> Self {
        self.with_text(move |out| head(out, name, kind, help)).with(move || Samples {
            name,
            items: items().into_iter(),
            samples,
        })
    }
}

impl Pieces for Scrape {
    fn append(&mut self, out: &mut String) -> bool {
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                let Some(begin) = self.parts.pop_front() else { return false };
                self.current.insert(begin())
            }
        };
        if !current.append(out) {
            self.current = None;
        }
        self.current.is_some() || !self.parts.is_empty()
    }
}

/// A text that is written at once.
struct Text<F>(Option<F>);

impl<F: FnOnce(&mut String) + Send + 'static> Pieces for Text<F> {
    fn append(&mut self, out: &mut String) -> bool {
        if let Some(write) = self.0.take() {
            write(out);
        }
        false
    }
}

/// The labels and the value of a sample.
pub(super) type Sample = (String, f64);

/// A family without its head.
struct Samples<T, F> {
    name: &'static str,
    items: std::vec::IntoIter<T>,
    samples: F,
}

impl<T, S, F> Pieces for Samples<T, F>
where
    T: Send + 'static,
    S: IntoIterator<Item = Sample> + 'static,
    F: FnMut(T) -> S + Send + 'static,
{
    fn append(&mut self, out: &mut String) -> bool {
        if let Some(item) = self.items.next() {
            for (labels, value) in (self.samples)(item) {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{PREFIX}{}{{{labels}}} {value}", self.name);
            }
        }
        self.items.len() > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use shared::admin::Body;

    use super::*;

    #[test]
    fn a_part_begins_when_the_one_before_it_has_ended() {
        let made = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&made);
        let family = ("a", "gauge", "Of a");
        let mut scrape = Scrape::default()
            .with_samples(family, || vec![1, 2], |item| [(format!("b=\"{item}\""), f64::from(item))])
            .with_samples(
                family,
                move || {
                    noted.fetch_add(1, Ordering::Relaxed);
                    vec![3]
                },
                |item| Some((String::new(), f64::from(item))),
            );
        let mut text = String::new();
        for _ in 0..3 {
            assert!(scrape.append(&mut text));
        }
        assert!(text.ends_with("nginx_ingress_controller_a{b=\"2\"} 2\n"), "{text}");
        assert_eq!(made.load(Ordering::Relaxed), 0);
        let rest = Body::Pieces(Box::new(scrape)).into_bytes();
        assert!(rest.ends_with(b"nginx_ingress_controller_a{} 3\n"), "{rest:?}");
        assert!(!Scrape::default().append(&mut text));
    }
}
