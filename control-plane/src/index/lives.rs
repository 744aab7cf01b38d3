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
    now: Option<Timestamp>,
    of: HashMap<ObjectName, Life>,
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
            Some(life) => _ = self.of.insert(name.clone(), life),
            None => _ = self.of.remove(name),
        }
    }

    /// Sets the time. Returns the Secrets for which that makes a difference.
    fn set_time(&mut self, now: Timestamp) -> Vec<ObjectName> {
        let before = self.now.replace(now);
        let differs = |life: &Life| before.is_none_or(|before| stage(life, before) != stage(life, now));
        let changed = self.of.iter().filter(|(_, life)| differs(life));
        changed.map(|(name, _)| name.clone()).collect()
    }

    /// What the owner of a Secret is told.
    pub(super) fn fault(&self, name: &ObjectName) -> Option<Fault> {
        let (life, now) = self.of.get(name).zip(self.now)?;
        let Life { begins, ends } = life;
        let reason = match stage(life, now) {
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
}
