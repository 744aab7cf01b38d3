//! Pages of the documentation that are generated from the definitions, and a control plane for the tests of questions.

pub(crate) mod fake;
mod flags_page;
