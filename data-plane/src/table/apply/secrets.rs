//! Server certificates by Secret: keys are read here, once, and put into the cells that hosts refer to.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use shared::resource::{Certificate, Chain};

use super::{Counters, Leave};
use crate::table::cell::CertificateCell;
use crate::table::certified::{Certified, CertifiedError};

/// All certificates and their cells.
#[derive(Debug)]
pub(super) struct Secrets {
    counters: Arc<Counters>,
    /// By `namespace/name` of the Secret.
    shown: HashMap<Arc<str>, Shown>,
    chains: HashMap<Arc<str>, Chain>,
    /// Certificates that name a chain, whether it exists or not.
    by_chain: HashMap<String, BTreeSet<Arc<str>>>,
    cells: HashMap<Arc<str>, Weak<CertificateCell>>,
    default: Option<Arc<CertificateCell>>,
    /// Certificates that were removed while one of their cells was in use.
    lingering: BTreeSet<Arc<str>>,
    /// Those of them that were missing in a full sync.
    absent: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Shown {
    certificate: Certificate,
    certified: Arc<Certified>,
}

impl Secrets {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            shown: HashMap::new(),
            chains: HashMap::new(),
            by_chain: HashMap::new(),
            cells: HashMap::new(),
            default: None,
            lingering: BTreeSet::new(),
            absent: BTreeSet::new(),
        }
    }

    /// Whether a version of this certificate is served.
    pub(super) fn serves(&self, key: &str) -> bool {
        self.shown.contains_key(key)
    }

    /// Whether a version of this chain is stored.
    pub(super) fn serves_chain(&self, key: &str) -> bool {
        self.chains.contains_key(key)
    }

    /// Whether a certificate is in use although it was removed.
    pub(super) fn lingers(&self, key: &str) -> bool {
        self.lingering.contains(key)
    }

    /// Whether such a certificate names this chain.
    pub(super) fn lingers_with(&self, chain: &str) -> bool {
        self.by_chain.get(chain).is_some_and(|names| names.iter().any(|key| self.lingering.contains(key)))
    }

    /// Whether this is the certificate that is served.
    pub(super) fn says(&self, key: &str, certificate: &Certificate) -> bool {
        self.shown.get(key).is_some_and(|shown| shown.certificate == *certificate)
    }

    /// Whether this is the chain that is stored.
    pub(super) fn says_chain(&self, key: &str, chain: &Chain) -> bool {
        self.chains.get(key) == Some(chain)
    }

    /// Whether workers see the certificate that is served, if any table refers to it.
    pub(super) fn is_live(&self, key: &str) -> bool {
        let Some(cell) = self.cells.get(key).and_then(Weak::upgrade) else { return true };
        let [found, shown] =
            [cell.certificate(), self.shown.get(key).map(|shown| Arc::clone(&shown.certified))];
        found.as_ref().map(Arc::as_ptr) == shown.as_ref().map(Arc::as_ptr)
    }

    /// Serves a certificate. Its chain may come later; until then it is sent without.
    pub(super) fn put(&mut self, key: &Arc<str>, certificate: Certificate) -> Result<(), CertifiedError> {
        let chain = certificate.chain.as_deref().and_then(|chain| self.chains.get(chain));
        let certified = Arc::new(Certified::build(&certificate, chain)?.of(key));
        self.lingering.remove(key);
        self.absent.remove(key);
        let chain = certificate.chain.clone();
        let before = self.shown.insert(Arc::clone(key), Shown { certificate, certified });
        self.unlink(key, before.and_then(|before| before.certificate.chain));
        if let Some(chain) = chain {
            self.by_chain.entry(chain).or_default().insert(Arc::clone(key));
        }
        self.fill(key);
        Ok(())
    }

    /// Stores a chain, which completes the certificates that waited for it.
    pub(super) fn put_chain(&mut self, key: &Arc<str>, chain: Chain) {
        for waiting in self.by_chain.get(&**key).cloned().unwrap_or_default() {
            let Some(shown) = self.shown.get_mut(&waiting) else {
                continue;
            };
            // The leaf was valid without the chain; a chain that is not valid X.509 leaves it as it is.
            if let Ok(certified) = Certified::build(&shown.certificate, Some(&chain)) {
                shown.certified = Arc::new(certified.of(&waiting));
                self.fill(&waiting);
            }
        }
        self.chains.insert(Arc::clone(key), chain);
    }

    /// Removes a certificate.
    pub(super) fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        if leave == Leave::Gone || !self.in_use(key) {
            self.forget(key);
            return;
        }
        if leave == Leave::Absent {
            self.absent.insert(Arc::clone(key));
        }
        self.lingering.insert(Arc::clone(key));
    }

    /// Removes a chain; certificates that it completed stay complete.
    pub(super) fn remove_chain(&mut self, key: &str) {
        self.chains.remove(key);
    }

    /// Certificates that were missing in a full sync go out of use.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.absent) {
            self.forget(&key);
        }
    }

    /// Drops what no table refers to any more.
    pub(super) fn sweep(&mut self) {
        // Few linger at any time, and there are few cells compared with hosts.
        let free: Vec<_> = self.lingering.iter().filter(|key| !self.in_use(key)).cloned().collect();
        for key in free {
            self.forget(&key);
        }
    }

    /// The filled cell of a Secret. It is the same object as long as a table refers to it.
    pub(super) fn cell(&mut self, key: &str) -> Arc<CertificateCell> {
        if let Some(cell) = self.cells.get(key).and_then(Weak::upgrade) {
            return cell;
        }
        // Free cells are removed when the map is about to grow, so the cost is amortized.
        if self.cells.len() == self.cells.capacity() {
            self.cells.retain(|_, cell| cell.strong_count() > 0);
        }
        let key: Arc<str> = key.into();
        let cell = Arc::new(CertificateCell::new(Arc::clone(&key)));
        cell.store(self.shown.get(&key).map(|shown| Arc::clone(&shown.certified)));
        self.cells.insert(key, Arc::downgrade(&cell));
        cell
    }

    /// Sets the Secret of the default certificate; empty for none.
    pub(super) fn set_default(&mut self, key: &str) {
        self.default = (!key.is_empty()).then(|| self.cell(key));
    }

    /// The cell of the default certificate.
    pub(super) fn default_cell(&self) -> Option<Arc<CertificateCell>> {
        self.default.clone()
    }

    fn in_use(&self, key: &Arc<str>) -> bool {
        self.cells.get(key).is_some_and(|cell| cell.strong_count() > 0)
    }

    fn forget(&mut self, key: &Arc<str>) {
        self.lingering.remove(key);
        self.absent.remove(key);
        let before = self.shown.remove(key);
        self.unlink(key, before.and_then(|before| before.certificate.chain));
        self.fill(key);
    }

    fn unlink(&mut self, key: &Arc<str>, chain: Option<String>) {
        let Some(chain) = chain else {
            return;
        };
        if let Some(wanting) = self.by_chain.get_mut(&chain) {
            wanting.remove(key);
            if wanting.is_empty() {
                self.by_chain.remove(&chain);
            }
        }
    }

    fn fill(&self, key: &Arc<str>) {
        if let Some(cell) = self.cells.get(key).and_then(Weak::upgrade) {
            cell.store(self.shown.get(key).map(|shown| Arc::clone(&shown.certified)));
            self.counters.certificates_updated.fetch_add(1, Ordering::Relaxed);
        }
    }
}
