//! References to Secrets and ConfigMaps: who uses which object, and for what. The only place that requests objects,
//! waits for them and releases them.
//!
//! A *site* is one user with one purpose: the certificates of a host, the users file of an Ingress. Its references are
//! set together. If one of them was not read yet, the site keeps its previous references until all are read: that is,
//! read, known to be absent, or known to be undecodable. Timeouts and errors do not count. What was read once and cannot
//! be read again is *stale*: it stays in use, and people are told.
//!
//! **Invariant:** what a site uses was read; an object is wanted as long as a site refers to it or still uses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use imbl::OrdSet;
use shared::few::{Few, FewOf};
use shared::name::{HostName, ObjectName};

use crate::objects::ObjectRef;
use crate::reference::Use;

/// The user of a reference.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum User {
    Host(HostName),
    Ingress(ObjectName),
    /// The newest version of an Ingress, until it comes into use.
    Coming(ObjectName),
    /// The newest version of an Ingress, which is rejected.
    Rejected(ObjectName),
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

/// Which references a site may use now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Its current references.
    Newest,
    /// Its previous references.
    Earlier,
    /// None: it never had a reference that was read.
    Nothing,
}

#[derive(Debug, Default)]
struct References {
    newest: FewOf<ObjectRef>,
    /// The references in use, if they are not the newest.
    earlier: Option<FewOf<ObjectRef>>,
}

impl References {
    fn all(&self) -> BTreeSet<ObjectRef> {
        self.newest.iter().chain(self.earlier.iter().flatten()).cloned().collect()
    }
}

/// A referenced object.
#[derive(Debug, Default)]
struct Referred {
    sites: FewOf<Site>,
    /// Number of references for each purpose.
    uses: Few<Use, usize>,
    is_read: bool,
    /// Why the last attempt to read it failed.
    failing: Option<Arc<str>>,
    /// It was not read in time.
    is_late: bool,
}

/// All references.
#[derive(Debug, Default)]
pub(super) struct Refs {
    sites: HashMap<Site, References>,
    objects: HashMap<ObjectRef, Referred>,
    wants: OrdSet<ObjectRef>,
    /// Wanted objects that were not read yet, with the error of the last attempt.
    awaited: BTreeMap<ObjectRef, Option<Arc<str>>>,
    /// Wanted objects that were read, with the error since which they cannot be read again.
    stale: BTreeMap<ObjectRef, Arc<str>>,
    /// Objects that got or lost a purpose since `take_turned`.
    turned: BTreeSet<ObjectRef>,
}

impl Refs {
    /// The referenced objects, whether they exist or not. A clone is cheap.
    pub(super) fn wants(&self) -> &OrdSet<ObjectRef> {
        &self.wants
    }

    /// Those that were not read yet, with the error if an attempt failed.
    pub(super) fn awaited(&self) -> &BTreeMap<ObjectRef, Option<Arc<str>>> {
        &self.awaited
    }

    /// Whether an object is referenced for one of the purposes.
    pub(super) fn is_used(&self, object: &ObjectRef, purpose: impl Fn(Use) -> bool) -> bool {
        self.objects.get(object).is_some_and(|referred| referred.uses.keys().any(|what| purpose(*what)))
    }

    /// The sites that refer to an object, or still use it.
    pub(super) fn sites_of(&self, object: &ObjectRef) -> impl Iterator<Item = &Site> {
        self.objects.get(object).into_iter().flat_map(|referred| &referred.sites)
    }

    /// The sites that refer to something for a purpose.
    pub(super) fn sites_for(&self, what: Use) -> impl Iterator<Item = &Site> {
        self.sites.keys().filter(move |site| site.what == what)
    }

    /// Whether the object is only used until its replacement was read.
    pub(super) fn is_kept(&self, object: &ObjectRef) -> bool {
        self.sites_of(object).any(|site| {
            let references = self.sites.get(site);
            references.is_some_and(|it| it.earlier.as_ref().is_some_and(|earlier| earlier.contains(object)))
        })
    }

    /// The previous references, which a site uses until the new ones were read.
    pub(super) fn in_use(&self, site: &Site) -> impl Iterator<Item = &ObjectRef> {
        self.sites.get(site).into_iter().flat_map(|references| references.earlier.iter().flatten())
    }

    /// What a site waits for, with the error of the last attempt.
    pub(super) fn awaited_by(&self, site: &Site) -> impl Iterator<Item = (&ObjectRef, Option<&Arc<str>>)> {
        let newest = self.sites.get(site).into_iter().flat_map(|references| &references.newest);
        newest.filter_map(|object| Some((object, self.awaited.get(object)?.as_ref())))
    }

    /// Whether an object was read.
    pub(super) fn is_read(&self, object: &ObjectRef) -> bool {
        self.objects.get(object).is_some_and(|referred| referred.is_read)
    }

    /// Whether an object is awaited, and nothing was said against it yet.
    pub(super) fn is_expected(&self, object: &ObjectRef) -> bool {
        let is_expected = |it: &Referred| !it.is_read && !it.is_late && it.failing.is_none();
        self.objects.get(object).is_some_and(is_expected)
    }

    /// Whether a site has a reference that was read: that stays in use while another one is awaited.
    pub(super) fn has_one(&self, site: &Site) -> bool {
        self.sites.get(site).is_some_and(|it| {
            let mut newest = it.newest.iter();
            it.earlier.is_some()
                || (!it.newest.is_empty() && newest.all(|object| !self.awaited.contains_key(object)))
        })
    }

    /// Why an object that was read cannot be read again; `None`: it can, or was not read yet.
    pub(super) fn stale(&self, object: &ObjectRef) -> Option<&Arc<str>> {
        self.stale.get(object)
    }

    /// Those of a site.
    pub(super) fn stale_of(&self, site: &Site) -> impl Iterator<Item = (&ObjectRef, &Arc<str>)> {
        let newest = self.sites.get(site).into_iter().flat_map(|references| &references.newest);
        newest.filter_map(|object| Some((object, self.stale.get(object)?)))
    }

    /// Sets the references of a site. `is_there`: whether an object is known without being requested.
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
        // Previous references that are released now.
        self.turned.extend(before.earlier.iter().flatten().cloned());
        let used = before.earlier.or_else(|| {
            // The references become the previous ones only if all of them were read.
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

    /// Notes that an object was read, or is known to be absent or undecodable. Returns the sites to compile again.
    pub(super) fn read(&mut self, object: &ObjectRef) -> Vec<Site> {
        self.stale.remove(object);
        let Some(referred) = self.objects.get_mut(object) else {
            return Vec::new();
        };
        if std::mem::replace(&mut referred.is_read, true) {
            return Vec::new();
        }
        self.awaited.remove(object);
        referred.sites.iter().cloned().collect()
    }

    /// Notes that reading an object failed and is retried. Returns the sites to compile again: those that were not told
    /// before, and that wait for it.
    pub(super) fn failed(&mut self, object: &ObjectRef, reason: &Arc<str>) -> Vec<Site> {
        let Some(referred) = self.objects.get_mut(object) else {
            return Vec::new();
        };
        if referred.is_read {
            self.stale.insert(object.clone(), Arc::clone(reason));
            return Vec::new();
        }
        if referred.failing.as_ref() == Some(reason) {
            return Vec::new();
        }
        referred.failing = Some(Arc::clone(reason));
        self.awaited.insert(object.clone(), Some(Arc::clone(reason)));
        referred.sites.iter().cloned().collect()
    }

    /// Notes that an object was not read in time. Returns the sites to compile again.
    pub(super) fn late(&mut self, object: &ObjectRef) -> Vec<Site> {
        let Some(referred) = self.objects.get_mut(object).filter(|it| !it.is_read && !it.is_late) else {
            return Vec::new();
        };
        referred.is_late = true;
        referred.sites.iter().cloned().collect()
    }

    /// Returns the objects that got or lost a purpose since the last call.
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
                self.stale.remove(object);
            }
        }
    }
}
