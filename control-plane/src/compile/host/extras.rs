//! What few hosts have: canaries, and settings of which the oldest Ingress decides for the whole host.
//!
//! **Invariant:** a host without any of it has no more than a pointer for it: of ten thousand hosts, each of these sets
//! would take half a megabyte.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use shared::few::{Few, FewOf};

use super::app_roots::{AppRoot, AppRoots};
use super::canaries::Wishes;
use super::{asks_for_certificates, backend_tls};
use crate::compile::claim::difference::Numbered;
use crate::compile::claim::{Age, Claim};

/// What a host without extras has.
static NONE: LazyLock<Sets> = LazyLock::new(Sets::default);

/// The extras of a host.
#[derive(Debug, Default)]
pub(super) struct Extras(Option<Box<Sets>>);

/// All of them. It is not changed except by [`Extras`].
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) canaries: Few<Age, Arc<Claim>>,
    pub(super) wishes: Wishes,
    pub(super) deciders: Deciders,
    /// Those with a location that is a regular expression, as of their last compile.
    pub(super) patterns: FewOf<Age>,
    /// Those with a location that ask for `from-to-www-redirect`, as of their last compile.
    pub(super) www: FewOf<Age>,
    /// Those with a location and an `app-root`, as of their last compile.
    pub(super) app_roots: AppRoots,
}

/// Claims with settings of which the oldest one decides; canaries only where it is said.
#[derive(Debug, Default)]
pub(super) struct Deciders {
    /// Aliases of the host.
    pub(super) aliases: FewOf<Age>,
    /// All paths of the host answer 503.
    pub(super) guards: FewOf<Age>,
    /// A server-snippet.
    pub(super) snippets: FewOf<Age>,
    /// TLS towards backends, canaries included.
    pub(super) backend_tls: FewOf<Age>,
    /// Client certificates, canaries included.
    pub(super) client_certificates: FewOf<Age>,
    /// TLS passthrough, or that there is none.
    pub(super) passthrough: FewOf<Age>,
    /// Ciphers.
    pub(super) ciphers: FewOf<Age>,
    /// The server's own order of ciphers.
    pub(super) order: FewOf<Age>,
    /// A `spec.defaultBackend` that claims the implicit "/" of the host.
    pub(super) roots: FewOf<Age>,
}

impl Deref for Extras {
    type Target = Sets;

    fn deref(&self) -> &Sets {
        self.0.as_deref().unwrap_or_else(|| &NONE)
    }
}

impl Extras {
    /// Takes in a claim. `asks_for_root`: its `spec.defaultBackend` claims the host's "/".
    pub(super) fn put_in(
        &mut self,
        claim: &Arc<Claim>,
        paths: &[Numbered<'_>],
        asks_for_root: bool,
        is_catch_all: bool,
    ) {
        self.change(|sets| {
            sets.deciders.insert(claim, asks_for_root);
            if claim.is_canary() {
                sets.canaries.insert(claim.age.clone(), Arc::clone(claim));
                sets.wishes.put_in(claim, paths, is_catch_all);
            }
        });
    }

    /// Takes a claim out.
    pub(super) fn take_out(&mut self, claim: &Claim, paths: &[Numbered<'_>]) {
        if self.0.is_none() {
            return;
        }
        self.change(|sets| {
            sets.deciders.remove(&claim.age);
            if claim.is_canary() {
                sets.canaries.remove(&claim.age);
                sets.wishes.take_out(claim, paths);
            } else {
                sets.patterns.remove(&claim.age);
                sets.www.remove(&claim.age);
                sets.app_roots.note(&claim.age, None);
            }
        });
    }

    /// Replaces a canary by a version that makes no difference to the host.
    pub(super) fn renew(&mut self, claim: &Arc<Claim>) {
        let sets = self.0.as_deref_mut();
        if let Some(there) = sets.and_then(|sets| sets.canaries.get_mut(&claim.age)) {
            *there = Arc::clone(claim);
        }
    }

    /// Records what a claim asks for, as of this compile. Returns whether that affects the host.
    pub(super) fn note(
        &mut self,
        claim: &Claim,
        has_patterns: bool,
        asks_for_www: bool,
        app_root: Option<AppRoot>,
    ) -> bool {
        if self.0.is_none() && !has_patterns && !asks_for_www && app_root.is_none() {
            return false;
        }
        self.change(|sets| {
            note(&mut sets.patterns, claim, has_patterns)
                | note(&mut sets.www, claim, asks_for_www)
                | sets.app_roots.note(&claim.age, app_root)
        })
    }

    /// The Ingresses whose `app-root` came into effect, or is not in effect any more, since the last call.
    pub(super) fn other_app_root(&mut self) -> Vec<Age> {
        if self.0.is_none() { Vec::new() } else { self.change(|sets| sets.app_roots.tell()) }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Sets) -> T) -> T {
        let mut sets = self.0.take().unwrap_or_default();
        let done = change(&mut sets);
        self.0 = Some(sets).filter(|sets| !sets.is_empty());
        done
    }
}

impl Sets {
    fn is_empty(&self) -> bool {
        let Self { canaries, wishes, deciders, patterns, www, app_roots } = self;
        canaries.is_empty()
            && wishes.is_empty()
            && app_roots.is_empty()
            && deciders.all().into_iter().chain([patterns, www]).all(FewOf::is_empty)
    }
}

impl Deciders {
    /// Adds a claim to the sets that it belongs in.
    fn insert(&mut self, claim: &Claim, asks_for_root: bool) {
        let serving = &claim.parsed.serving;
        let has_aliases = serving.host.aliases.as_ref().is_some_and(|list| !list.values.is_empty());
        let is_main = !claim.is_canary();
        for (set, belongs) in [
            (&mut self.backend_tls, backend_tls::is_configured(claim)),
            (&mut self.client_certificates, asks_for_certificates(claim)),
            (&mut self.aliases, is_main && has_aliases),
            (&mut self.guards, is_main && serving.hosts_denied.is_some()),
            (&mut self.snippets, is_main && serving.of_hosts.is_some()),
            (&mut self.passthrough, is_main && serving.host.passthrough.is_some()),
            (&mut self.ciphers, is_main && serving.host.ssl_ciphers.is_some()),
            (&mut self.order, is_main && serving.host.ssl_prefer_server_ciphers.is_some()),
            (&mut self.roots, is_main && asks_for_root),
        ] {
            if belongs {
                set.insert(claim.age.clone());
            }
        }
    }

    /// Removes a claim from all sets.
    fn remove(&mut self, age: &Age) {
        for set in self.all_mut() {
            set.remove(age);
        }
    }

    fn all(&self) -> [&FewOf<Age>; 9] {
        let Self {
            aliases,
            guards,
            snippets,
            backend_tls,
            client_certificates,
            passthrough,
            ciphers,
            order,
            roots,
        } = self;
        [aliases, guards, snippets, backend_tls, client_certificates, passthrough, ciphers, order, roots]
    }

    fn all_mut(&mut self) -> [&mut FewOf<Age>; 9] {
        let Self {
            aliases,
            guards,
            snippets,
            backend_tls,
            client_certificates,
            passthrough,
            ciphers,
            order,
            roots,
        } = self;
        [aliases, guards, snippets, backend_tls, client_certificates, passthrough, ciphers, order, roots]
    }
}

/// Records whether a claim has a setting. Returns whether that affects the host.
fn note(all: &mut FewOf<Age>, claim: &Claim, says: bool) -> bool {
    let was_said = !all.is_empty();
    if says {
        all.insert(claim.age.clone());
    } else {
        all.remove(&claim.age);
    }
    was_said == all.is_empty()
}
