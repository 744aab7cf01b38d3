//! Holds that cannot be stored: each is tried again for as long as its object stays rejected, and said once.

use std::collections::HashMap;

use crate::objects::ObjectRef;

/// What was said of which hold.
#[derive(Debug, Default)]
pub struct Failures(HashMap<ObjectRef, Said>);

#[derive(Debug)]
struct Said {
    reason: String,
    /// Tries that failed.
    tries: u64,
}

impl Failures {
    /// It failed once more. If the reason is news, returns how often it has failed by now.
    pub fn failed(&mut self, object: &ObjectRef, reason: &str) -> Option<u64> {
        let said = self.0.entry(object.clone()).or_insert_with(|| Said { reason: String::new(), tries: 0 });
        said.tries += 1;
        let is_news = said.reason != reason;
        reason.clone_into(&mut said.reason);
        is_news.then_some(said.tries)
    }

    /// It is stored, or not wanted any more, which is logged if it failed before. Returns how often.
    pub fn done(&mut self, object: &ObjectRef) -> Option<u64> {
        let tries = self.0.remove(object)?.tries;
        tracing::info!("the record of {object} is as it should be, after {tries} tries that failed");
        Some(tries)
    }
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::objects::ObjectKind;

    #[test]
    fn each_reason_is_said_once_until_it_changes_and_the_end_counts_the_tries() {
        let object = |name| ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new("n", name) };
        let (a, b, mut failures) = (object("a"), object("b"), Failures::default());
        let said = ["full", "full", "full", "forbidden", "full"].map(|reason| failures.failed(&a, reason));
        assert_eq!(said, [Some(1), None, None, Some(4), Some(5)]);
        assert_eq!(failures.failed(&b, "full"), Some(1), "another object");
        assert_eq!((failures.done(&a), failures.done(&a)), (Some(5), None));
        assert_eq!(failures.failed(&a, "full"), Some(1), "it begins again");
    }
}
