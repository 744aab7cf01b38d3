//! Describes a canary in words.

use serde_json::Value;

use crate::value::{field, integer};

/// Which requests an alternative backend takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Canary {
    /// Key of its Backend.
    pub(super) backend: String,
    /// Its number of endpoints, if they were counted.
    pub(super) endpoints: Option<usize>,
    pub(super) header: String,
    pub(super) header_value: String,
    pub(super) header_pattern: String,
    pub(super) cookie: String,
    pub(super) weight: i64,
    pub(super) weight_total: i64,
}

impl Canary {
    /// From the field `canary` of a Backend's body.
    pub(super) fn of(backend: String, policy: &Value) -> Self {
        let text = |name| field(policy, name).as_str().unwrap_or_default().to_owned();
        Self {
            backend,
            endpoints: None,
            header: text("header"),
            header_value: text("header_value"),
            header_pattern: text("header_pattern"),
            cookie: text("cookie"),
            weight: integer(field(policy, "weight")),
            weight_total: integer(field(policy, "weight_total")).max(100),
        }
    }

    /// A value of its header that selects it, if one is known.
    pub(super) fn header_to_reach(&self) -> Option<&str> {
        match (self.header.as_str(), self.header_value.as_str()) {
            ("", _) => None,
            (_, "") if self.header_pattern.is_empty() => Some("always"),
            (_, "") => None,
            (_, value) => Some(value),
        }
    }

    /// `10 of 100, header X-Canary: always, cookie canary=always`.
    pub(super) fn describe(&self) -> String {
        let mut words = vec![format!("{} of {}", self.weight, self.weight_total)];
        if let Some(value) = self.header_to_reach() {
            words.push(format!("header {}: {value}", self.header));
        } else if !self.header.is_empty() {
            words.push(format!("header {} like {}", self.header, self.header_pattern));
        }
        if !self.cookie.is_empty() {
            words.push(format!("cookie {}=always", self.cookie));
        }
        words.join(", ")
    }
}
