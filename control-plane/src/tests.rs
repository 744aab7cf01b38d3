//! Pages of the documentation that are generated from the definitions.

mod compatibility_page;
