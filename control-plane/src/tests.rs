//! Files that are generated from the definitions: pages of the documentation, and what values have for effects.

mod compatibility_page;
mod effects;
