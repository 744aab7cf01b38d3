//! What an application writes to its standard error for a request, which nginx writes into its error log: PHP reports
//! its errors that way.

use std::rc::Rc;
use std::sync::Arc;

use shared::clock;
use tracing::{debug, warn};

use crate::codec::fcgi::Said;
use crate::http::server::Server;

/// The complaint of one request. It is logged when the response has ended, once a minute for each backend.
pub(crate) struct Complaint {
    server: Rc<Server>,
    backend: Arc<str>,
    ingress: String,
    said: Rc<Said>,
}

impl Complaint {
    /// None so far, of this backend, which belongs to this Ingress.
    pub(crate) fn new(server: &Rc<Server>, backend: &Arc<str>, ingress: &str) -> Self {
        let (server, backend) = (Rc::clone(server), Arc::clone(backend));
        Self { server, backend, ingress: ingress.to_owned(), said: Rc::default() }
    }

    /// Where it is put.
    pub(crate) fn said(&self) -> &Rc<Said> {
        &self.said
    }
}

impl Drop for Complaint {
    fn drop(&mut self) {
        let Self { server, backend, ingress, said } = self;
        let Some(said) = said.take() else { return };
        let backend = &**backend;
        // Whoever is warned of a backend that fails is to see why, too.
        let own = format!("{backend} says");
        if !server.local.failures.allows(&own, clock::now()) {
            debug!(backend, said, "FastCGI sent in stderr");
            return;
        }
        warn!(
            backend,
            ingress, said, "FastCGI sent in stderr; this is logged once a minute for each backend"
        );
    }
}
