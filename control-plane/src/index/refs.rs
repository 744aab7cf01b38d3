//! Who refers to which Secret or ConfigMap, and for what: the one place that asks for objects, waits for them and lets
//! them go.
//!
//! A *site* is one user with one purpose: the certificates of a host, the users file of an Ingress. Its references are
//! set as a whole. Where one of them was not read yet, the site keeps what it referred to before until all are read:
//! read, known to be absent, or known to be unreadable as an object. Time and errors settle nothing.
//!
//! **Invariant:** what a site uses was read; an object is wanted as long as a site refers to it or still uses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use imbl::OrdSet;
use shared::few::{Few, FewOf};
use shared::name::{HostName, ObjectName};

use crate::objects::ObjectRef;
use crate::reference::Use;

/// Who refers to something.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum User {
    Host(HostName),
    Ingress(ObjectName),
    /// All proxies: a flag, or a key of the fleet's ConfigMap.
    Fleet,
    /// The pin.
    Pin,
}

/// One user with one purpose.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Site {
    pub(super) user: User,
    pub(super) what: Use,
}

/// What a site may use now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// What it refers to.
    Newest,
    /// What it referred to before.
    Earlier,
    /// Nothing: it never referred to anything that was read.
    Nothing,
}

#[derive(Debug, Default)]
struct References {
    newest: FewOf<ObjectRef>,
    /// Those in use, where that is not the newest.
    earlier: Option<FewOf<ObjectRef>>,
}

impl References {
    fn all(&self) -> BTreeSet<ObjectRef> {
        self.newest.iter().chain(self.earlier.iter().flatten()).cloned().collect()
    }
}

/// What is known of an object that somebody refers to.
#[derive(Debug, Default)]
struct Referred {
    sites: FewOf<Site>,
    /// How many of them there are for each purpose.
    uses: Few<Use, usize>,
    is_read: bool,
    /// Why it could not be read, at the last try.
    failing: Option<Arc<str>>,
}

/// All references.
#[derive(Debug, Default)]
pub(super) struct Refs {
    sites: HashMap<Site, References>,
    objects: HashMap<ObjectRef, Referred>,
    wants: OrdSet<ObjectRef>,
    /// Wanted and not read, and why the last try failed.
    awaited: BTreeMap<ObjectRef, Option<Arc<str>>>,
    /// Objects that got a new purpose, or lost one, since this was asked for.
    turned: BTreeSet<ObjectRef>,
}

impl Refs {
    /// The objects that somebody refers to, whether they exist or not. A clone is cheap.
    pub(super) fn wants(&self) -> &OrdSet<ObjectRef> {
        &self.wants
    }

    /// Those that were not read yet, and why not, where that was tried.
    pub(super) fn awaited(&self) -> &BTreeMap<ObjectRef, Option<Arc<str>>> {
        &self.awaited
    }

    /// Whether somebody refers to an object for one of the purposes.
    pub(super) fn is_used(&self, object: &ObjectRef, purpose: impl Fn(Use) -> bool) -> bool {
        self.objects.get(object).is_some_and(|referred| referred.uses.keys().any(|what| purpose(*what)))
    }

    /// Who refers to an object, or uses it still.
    pub(super) fn sites_of(&self, object: &ObjectRef) -> impl Iterator<Item = &Site> {
        self.objects.get(object).into_iter().flat_map(|referred| &referred.sites)
    }

    /// Who refers to something for a purpose.
    pub(super) fn sites_for(&self, what: Use) -> impl Iterator<Item = &Site> {
        self.sites.keys().filter(move |site| site.what == what)
    }

    /// Whether a site uses an object only until what took its place was read.
    pub(super) fn is_kept(&self, object: &ObjectRef) -> bool {
        self.sites_of(object).any(|site| {
            let references = self.sites.get(site);
            references.is_some_and(|it| it.earlier.as_ref().is_some_and(|earlier| earlier.contains(object)))
        })
    }

    /// What a site uses until what it refers to now was read.
    pub(super) fn in_use(&self, site: &Site) -> impl Iterator<Item = &ObjectRef> {
        self.sites.get(site).into_iter().flat_map(|references| references.earlier.iter().flatten())
    }

    /// What a site waits for, and why the last try failed.
    pub(super) fn awaited_by(&self, site: &Site) -> impl Iterator<Item = (&ObjectRef, Option<&Arc<str>>)> {
        let newest = self.sites.get(site).into_iter().flat_map(|references| &references.newest);
        newest.filter_map(|object| Some((object, self.awaited.get(object)?.as_ref())))
    }

    /// Sets what a site refers to. `is_there`: whether an object is known without being asked for.
    pub(super) fn set(
        &mut self,
        site: &Site,
        newest: BTreeSet<ObjectRef>,
        is_there: impl Fn(&ObjectRef) -> bool,
    ) -> Choice {
        let before = self.sites.remove(site).unwrap_or_default();
        let old = before.all();
        for object in newest.difference(&old) {
            self.add(object, site, &is_there);
        }
        let is_read = newest.iter().all(|object| !self.awaited.contains_key(object));
        // What went while it was kept goes now.
        self.turned.extend(before.earlier.iter().flatten().cloned());
        let used = before.earlier.or_else(|| {
            // What it referred to counts as used once all of that was read.
            let was_read = before.newest.iter().all(|object| !self.awaited.contains_key(object));
            (was_read && !before.newest.is_empty()).then_some(before.newest)
        });
        let (earlier, choice) = match used {
            _ if is_read => (None, Choice::Newest),
            Some(used) => (Some(used), Choice::Earlier),
            None => (None, Choice::Nothing),
        };
        let references = References { newest: newest.into_iter().collect(), earlier };
        let new = references.all();
        if !new.is_empty() {
            self.sites.insert(site.clone(), references);
        }
        for object in old.difference(&new) {
            self.remove(object, site);
        }
        choice
    }

    /// An object was read, or is known to be absent or unreadable. The sites that may go on.
    pub(super) fn read(&mut self, object: &ObjectRef) -> Vec<Site> {
        let Some(referred) = self.objects.get_mut(object) else {
            return Vec::new();
        };
        if std::mem::replace(&mut referred.is_read, true) {
            return Vec::new();
        }
        self.awaited.remove(object);
        referred.sites.iter().cloned().collect()
    }

    /// An object could not be read, and is tried again. The sites that were not told before.
    pub(super) fn failed(&mut self, object: &ObjectRef, reason: &Arc<str>) -> Vec<Site> {
        let Some(referred) = self.objects.get_mut(object).filter(|referred| !referred.is_read) else {
            return Vec::new();
        };
        if referred.failing.as_ref() == Some(reason) {
            return Vec::new();
        }
        referred.failing = Some(Arc::clone(reason));
        self.awaited.insert(object.clone(), Some(Arc::clone(reason)));
        referred.sites.iter().cloned().collect()
    }

    /// The objects that got a new purpose, or lost one, since this was asked for.
    pub(super) fn take_turned(&mut self) -> BTreeSet<ObjectRef> {
        std::mem::take(&mut self.turned)
    }

    fn add(&mut self, object: &ObjectRef, site: &Site, is_there: impl Fn(&ObjectRef) -> bool) {
        let referred = self.objects.entry(object.clone()).or_default();
        if referred.sites.is_empty() {
            referred.is_read = is_there(object);
            self.wants.insert(object.clone());
            if !referred.is_read {
                self.awaited.insert(object.clone(), None);
            }
        }
        if referred.sites.insert(site.clone()) {
            let count = referred.uses.get(&site.what).map_or(1, |count| count + 1);
            referred.uses.insert(site.what, count);
            if count == 1 {
                self.turned.insert(object.clone());
            }
        }
    }

    fn remove(&mut self, object: &ObjectRef, site: &Site) {
        if let Some(referred) = self.objects.get_mut(object) {
            if referred.sites.remove(site)
                && let Some(count) = referred.uses.get_mut(&site.what)
            {
                *count -= 1;
                if *count == 0 {
                    referred.uses.remove(&site.what);
                    self.turned.insert(object.clone());
                }
            }
            if referred.sites.is_empty() {
                self.objects.remove(object);
                self.wants.remove(object);
                self.awaited.remove(object);
            }
        }
    }
}
