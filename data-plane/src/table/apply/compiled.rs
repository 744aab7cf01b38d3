//! The compiled Routes of each host, so that one of them can be changed alone.
//!
//! **Invariant:** the newest table has of a host exactly what is stored here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::interned::StoredRoute;
use crate::table::host::{PathEntry, Routing};
use crate::table::paths::{Declared, Router};
use crate::table::patterns::Patterns;
use shared::few::{Few, FewOf};

/// A Route and its compiled form.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) source: Arc<StoredRoute>,
    /// One for each of its paths.
    pub(super) entries: Box<[Arc<PathEntry>]>,
    /// The Backends that it names, canaries and missing ones included.
    pub(super) uses: FewOf<Arc<str>>,
}

/// By length and text of a path, and the key of its Route.
type AppRoots = BTreeMap<(usize, Box<str>, Arc<str>), Box<str>>;

impl CompiledRoute {
    /// Its paths; of equal ones, the first.
    fn declared(&self) -> impl Iterator<Item = Declared> {
        let is_alone = self.entries.len() == 1;
        let mut seen = FewOf::default();
        self.all().filter(move |it| is_alone || seen.insert((it.kind, it.entry.text().cloned())))
    }

    fn all(&self) -> impl Iterator<Item = Declared> {
        let paths = self.source.paths.iter().zip(&self.entries);
        paths.map(|(path, entry)| Declared { kind: path.kind, entry: Arc::clone(entry) })
    }

    /// Its longest path (of equal length, the greatest) and its redirect target for "/".
    fn app_root(&self) -> Option<(&str, &str)> {
        // All of them share one policy.
        let path = self.entries.first()?.policy.redirect.app_root.as_deref()?;
        let texts = self.entries.iter().map(|entry| entry.declared());
        Some((texts.max_by_key(|text| (text.len(), *text))?, path))
    }
}

/// The compiled Routes of one host.
#[derive(Debug, Default)]
pub(super) struct CompiledHost {
    /// By key.
    routes: Few<Arc<str>, CompiledRoute>,
    /// The longest path of each Route with an `app-root`: the last entry is the first in nginx' list of locations (as in
    /// ingress-nginx). Few hosts have one.
    #[allow(clippy::box_collection, reason = "there is one of these for each host")]
    app_roots: Option<Box<AppRoots>>,
}

impl CompiledHost {
    /// The compiled form of a Route.
    pub(super) fn route(&self, key: &str) -> Option<&CompiledRoute> {
        self.routes.get(key)
    }

    /// The Routes that it was compiled from.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.routes.keys()
    }

    /// Sets or removes the compiled form of a Route; updates `router` where that makes a difference.
    pub(super) fn set(&mut self, key: &Arc<str>, now: Option<CompiledRoute>, router: Option<&mut Router>) {
        if let Some((text, path)) = now.as_ref().and_then(CompiledRoute::app_root) {
            let roots = self.app_roots.get_or_insert_default();
            roots.insert((text.len(), text.into(), Arc::clone(key)), path.into());
        }
        let before = match now {
            Some(now) => self.routes.insert(Arc::clone(key), now),
            None => self.routes.remove(key),
        };
        let now = self.routes.get(key);
        let root = |it: Option<&'_ CompiledRoute>| Some(it?.app_root()?.0.to_owned());
        let (was, is) = (root(before.as_ref()), root(now));
        if let Some(text) = was.filter(|was| is.as_ref() != Some(was))
            && let Some(roots) = &mut self.app_roots
        {
            roots.remove(&(text.len(), text.into(), Arc::clone(key)));
        }
        if let Some(router) = router {
            let name = |it: &Declared| (it.kind, it.entry.text().cloned());
            let before = before.iter().flat_map(CompiledRoute::declared);
            let mut left: HashMap<_, _> = before.map(|it| (name(&it), it.entry)).collect();
            for declared in now.into_iter().flat_map(CompiledRoute::declared) {
                let same = left.remove(&name(&declared));
                if same.is_none_or(|before| !Arc::ptr_eq(&before, &declared.entry)) {
                    router.put(declared);
                }
            }
            for ((kind, _), entry) in left {
                router.remove(entry.declared(), kind, key);
            }
        }
    }

    /// The Routes that it was compiled from, and the Backends that each of them names.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&Arc<str>, &FewOf<Arc<str>>)> {
        self.routes.iter().map(|(key, route)| (key, &route.uses))
    }

    /// The Routes that it was compiled from, as they were then.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<StoredRoute>)> {
        self.routes.iter().map(|(key, route)| (key, &route.source))
    }

    /// The entries of its paths that are reachable with this kind of routing.
    pub(super) fn paths(&self, by: &Routing) -> HashSet<*const PathEntry> {
        let routes = self.routes.values();
        let entry = |declared: Declared| Arc::as_ptr(&declared.entry);
        match by {
            Routing::Texts(_) => routes.flat_map(CompiledRoute::declared).map(entry).collect(),
            Routing::Patterns(_) => routes.flat_map(CompiledRoute::all).map(entry).collect(),
        }
    }

    /// A router of all paths.
    pub(super) fn router(&self) -> Router {
        let mut router = Router::default();
        self.routes.values().flat_map(CompiledRoute::declared).for_each(|it| router.put(it));
        router
    }

    /// All paths as regular expressions.
    pub(super) fn patterns(&self) -> Routing {
        let declared = self.routes.values().flat_map(CompiledRoute::all).collect();
        Routing::Patterns(Arc::new(Patterns::new(declared)))
    }

    /// The redirect target for "/".
    pub(super) fn app_root(&self) -> Option<&str> {
        self.app_roots.as_ref()?.last_key_value().map(|(_, path)| &**path)
    }
}
