//! The status of Ingresses: the addresses of their hosts, for external-dns, Argo CD and people.
//!
//! Pure: which addresses there are (`addresses`), who of all replicas writes (`election`), and which Ingresses differ
//! (`ledger`). The requests are `kube::status`'.
//!
//! **Invariant:** only what is ours and differs is written, over the version that was read; and what is not known is not taken for
//! nothing.

pub mod addresses;
pub mod election;
pub mod ledger;
