//! How long certificates last: the owner is told of one that has ended, or does soon (which ingress-nginx logs).
//!
//! **Invariant:** nothing that is served depends on it, nor on a clock.

use std::collections::HashMap;
use std::time::SystemTime;

use jiff::Timestamp;
use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use crate::compile::certificate::Life;
use crate::objects::ObjectKind;
use crate::problem::{Fault, Severity};

/// What is left of a certificate when its owner is told, in seconds (ingress-nginx); of one that lasts for less than ten
/// times as long, a tenth of it.
const SOON: i64 = 10 * 24 * 60 * 60;

/// The certificates that are shown, and the time as far as it was told.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// The time by which all were judged, and the time for those that come now.
    judged: Option<Timestamp>,
    now: Option<Timestamp>,
    /// With the time when each came, if that was since.
    of: HashMap<ObjectName, (Life, Option<Timestamp>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Early,
    Fine,
    Late,
    Over,
}

impl Lives {
    /// Notes the certificate of a Secret.
    pub(super) fn set(&mut self, name: &ObjectName, life: Option<Life>) {
        match life {
            Some(life) => _ = self.of.insert(name.clone(), (life, self.now)),
            None => _ = self.of.remove(name),
        }
    }

    /// Sets the time. Returns the Secrets for which that makes a difference.
    fn set_time(&mut self, now: Timestamp) -> Vec<ObjectName> {
        self.now = Some(now);
        let judged = self.judged.replace(now);
        let mut changed = Vec::new();
        for (name, (life, came)) in &mut self.of {
            let before = came.take().or(judged);
            if before.is_none_or(|before| stage(life, before) != stage(life, now)) {
                changed.push(name.clone());
            }
        }
        changed
    }

    /// What the owner of a Secret is told.
    pub(super) fn fault(&self, name: &ObjectName) -> Option<Fault> {
        let (life, came) = self.of.get(name)?;
        let Life { begins, ends } = life;
        let reason = match stage(life, came.or(self.judged)?) {
            Stage::Fine => return None,
            Stage::Early => {
                format!("the certificate is not valid before {begins}: clients refuse it until then")
            }
            Stage::Late => format!("the certificate ends soon, at {ends}"),
            Stage::Over => format!("the certificate ended at {ends}: clients refuse it"),
        };
        Some(Fault::new(Severity::Warning, "data[tls.crt]", reason))
    }
}

fn stage(Life { begins, ends }: &Life, now: Timestamp) -> Stage {
    let tenth = (ends.as_second() - begins.as_second()) / 10;
    if now < *begins {
        Stage::Early
    } else if now > *ends {
        Stage::Over
    } else if ends.as_second() - now.as_second() < SOON.min(tenth) {
        Stage::Late
    } else {
        Stage::Fine
    }
}

impl Index {
    /// Tells the time for Secrets that come next: a certificate that was issued a moment ago is valid.
    pub fn pass_time(&mut self, now: SystemTime) {
        self.secrets.lives.now = Timestamp::try_from(now).ok();
    }

    /// Tells the time; every hour or so is often enough. It changes problems alone, with the next commit.
    pub fn set_time(&mut self, now: SystemTime) {
        if let Ok(now) = Timestamp::try_from(now) {
            let changed = self.secrets.lives.set_time(now);
            self.dirty.problems.extend(changed.iter().map(|name| reference(ObjectKind::Secret, name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_owner_is_told_when_a_certificate_is_not_valid_or_soon_will_not_be() {
        const DAY: i64 = 24 * 60 * 60;
        let name = ObjectName::new("n", "cert");
        for (days, soon) in [(365, 355), (90, 81), (10, 9)] {
            let mut lives = Lives::default();
            lives.set(&name, Some(Life { begins: at(DAY), ends: at(DAY + days * DAY) }));
            assert_eq!(lives.fault(&name), None, "nobody knows the time");
            let mut told = |second| {
                let is_changed = !lives.set_time(at(second)).is_empty();
                (is_changed, lives.fault(&name).map(|fault| fault.reason).unwrap_or_default())
            };
            let begins =
                "the certificate is not valid before 1970-01-02T00:00:00Z: clients refuse it until then";
            assert_eq!(told(0), (true, begins.to_owned()));
            assert_eq!(told(DAY), (true, String::new()));
            assert_eq!(told(soon * DAY + DAY), (false, String::new()), "{days}");
            let (is_changed, late) = told(soon * DAY + DAY + 1);
            assert!(is_changed && late.starts_with("the certificate ends soon, at "), "{days}: {late}");
            assert!(!told(days * DAY + DAY).0);
            let (is_changed, over) = told(days * DAY + DAY + 1);
            assert!(is_changed && over.ends_with(": clients refuse it"), "{days}: {over}");
        }
    }

    #[test]
    fn a_certificate_is_judged_by_the_time_when_it_came() {
        let name = ObjectName::new("n", "cert");
        let life = Life { begins: at(1_800), ends: at(1_000_000_000) };
        let mut lives = Lives::default();
        lives.set_time(at(0));
        for (now, is_early) in [(1_799, true), (1_800, false)] {
            lives.now = Some(at(now));
            lives.set(&name, Some(life));
            assert_eq!(lives.fault(&name).is_some(), is_early, "{now}");
        }
        assert_eq!(lives.set_time(at(3_600)), []);
    }
}
