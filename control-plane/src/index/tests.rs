//! The rules of the spine by example, and what must hold whatever happens.

mod affinity;
mod allowed;
mod canaries;
mod causes;
mod classes;
mod endpoints;
mod errors;
mod fixture;
mod headers;
mod holds;
mod interrupted;
mod made;
mod names;
mod original;
mod pins;
mod prefix;
mod price;
mod properties;
mod references;
mod restrictions;
mod review;
mod routing;
mod sizes;
mod snippets;
mod tls;
mod whole;
