//! Decides what is written to the status of Ingresses: the addresses of their hosts, for external-dns, Argo CD and
//! people.
//!
//! Pure: which addresses there are (`addresses`), which replica writes (`election`), and which Ingresses differ
//! (`ledger`). `kube::status` makes the requests.
//!
//! **Invariant:** only our own Ingresses are written, only if they differ, and over the version that was read; and
//! unknown addresses are not taken for none.

pub mod addresses;
pub mod election;
pub mod ledger;
