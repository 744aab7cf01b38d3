//! IngressClasses, and which Ingresses are ours by them, as in ingress-nginx.
//!
//! An Ingress is ours by a class of our controller, by the annotation, or without any class if a flag says so. In a
//! folder the part of the API server is played, too: an Ingress without a class gets the default class, and if a folder
//! has no IngressClass at all, the name in `--ingress-class` is taken for one of ours. If classes are ignored
//! (`--ignore-ingress-classes`), `spec.ingressClassName` does not decide that.
//!
//! **Invariant:** an Ingress that no known controller serves has a problem that says why.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::ingresses::Ingresses;
use super::objects::reference;
use super::retained::Members;
use super::slot::Slot;
use crate::objects::{Ingress, IngressClass, Object, ObjectKind};
use crate::problem::{Fault, Problem, Severity};

/// Annotation that names the class of an Ingress without `spec.ingressClassName`.
pub(super) const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Annotation that makes an IngressClass the default.
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

/// Limit of the characters of a name that are shown: no valid name is longer.
pub(super) const MAX_SHOWN: usize = 63;

/// The known IngressClasses.
#[derive(Debug, Default)]
pub(super) struct Classes {
    known: BTreeMap<Arc<str>, Known>,
    /// They may not be listed: classes that are not known may exist.
    unreadable: bool,
}

/// A class that exists, or is kept.
#[derive(Debug)]
struct Known {
    /// A default class: its creation time in seconds.
    default: Option<i64>,
    /// It was deleted, and is kept for these Ingresses.
    kept: Option<Members>,
}

impl Classes {
    fn set(&mut self, name: &Arc<str>, class: Option<&IngressClass>, is_kept: bool) {
        let Some(class) = class else {
            self.known.remove(name);
            return;
        };
        let is_default = class.metadata.annotations.get(DEFAULT_ANNOTATION).is_some_and(|it| it == "true");
        let created = class.metadata.creation_timestamp.parse::<jiff::Timestamp>();
        let second = created.map_or(i64::MIN, jiff::Timestamp::as_second);
        let kept = is_kept.then(|| Members::listed(class));
        self.known.insert(Arc::clone(name), Known { default: is_default.then_some(second), kept });
    }

    /// Whether no class exists.
    fn are_none(&self) -> bool {
        self.known.values().all(|known| known.kept.is_some())
    }

    /// The classes that Ingresses name and that are not known.
    fn missing<'a>(&'a self, ingresses: &'a Ingresses) -> impl Iterator<Item = &'a str> {
        let named = ingresses.by_class().map(|(class, _)| class.as_str());
        named.filter(|class| !class.is_empty() && !self.known.contains_key(*class))
    }

    /// The Ingresses for which a deleted class is kept.
    pub(super) fn kept(&self, class: &str) -> Option<&Members> {
        self.known.get(class)?.kept.as_ref()
    }

    /// The deleted classes that may be kept for an Ingress that names this one; empty: that names none.
    pub(super) fn kept_for(&self, class: &str) -> impl Iterator<Item = &Arc<str>> {
        let named = self.known.get_key_value(class);
        let default = self.default_class().filter(|_| class.is_empty());
        let default = default.and_then(|class| self.known.get_key_value(class));
        named.into_iter().chain(default).filter(|(_, known)| known.kept.is_some()).map(|(name, _)| name)
    }

    /// The default class: of several the newest, then the first by name, as the API server chooses. One that was deleted
    /// is the default only while no other is.
    fn default_class(&self) -> Option<&Arc<str>> {
        let defaults = self
            .known
            .iter()
            .filter_map(|(name, known)| Some((known.kept.is_some(), Reverse(known.default?), name)));
        defaults.min().map(|(.., name)| name)
    }
}

/// How an Ingress names its class.
enum Named<'a> {
    Field(&'a str),
    Annotation(&'a str),
    Nothing,
}

impl<'a> Named<'a> {
    /// The field comes first; an Ingress that has it is never ours by the annotation, unless classes are ignored. An empty
    /// annotation names a class, too, which nobody has (ingress-nginx).
    fn of(ingress: &'a Ingress, ignores_classes: bool) -> Self {
        let filled = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        let field = ingress.spec.ingress_class_name.as_ref().and_then(filled).filter(|_| !ignores_classes);
        let annotation = || ingress.metadata.annotations.get(CLASS_ANNOTATION);
        match (field, annotation) {
            (Some(class), _) => Self::Field(class),
            (None, annotation) => annotation().map_or(Self::Nothing, |class| Self::Annotation(class)),
        }
    }
}

/// Which controller an Ingress belongs to.
enum Belonging {
    Ours,
    /// Another controller, which may exist.
    Another,
    /// No known controller, for this reason.
    Nobody(Fault),
}

/// The class that an Ingress names, on which its controller depends; empty if it names none.
pub(super) fn class_of(ingress: &Ingress, ignores_classes: bool) -> String {
    match Named::of(ingress, ignores_classes) {
        Named::Field(class) | Named::Annotation(class) => class.to_owned(),
        Named::Nothing => String::new(),
    }
}

impl Index {
    /// Whether an Ingress is ours. Unlike in ingress-nginx, a class that is created takes effect on its Ingresses at
    /// once; one that is deleted is kept for them ([`super::retained`]).
    pub(super) fn is_ours(&self, ingress: &Ingress) -> bool {
        matches!(self.belonging(ingress), Belonging::Ours)
    }

    /// Why no known controller serves an Ingress.
    pub(super) fn class_fault(&self, ingress: &Ingress) -> Option<Fault> {
        match self.belonging(ingress) {
            Belonging::Nobody(fault) => Some(fault),
            Belonging::Ours | Belonging::Another => None,
        }
    }

    /// Whether an Ingress is ours by its class, regardless of other flags.
    pub(super) fn is_of_our_class(&self, ingress: &Ingress) -> bool {
        matches!(self.by_name(ingress), Belonging::Ours)
    }

    /// The fault of an Ingress that is served here, but would not be in a cluster.
    pub(super) fn classless_fault(&self, ingress: &Ingress) -> Option<Fault> {
        let is_odd = self.options.folder
            && self.options.watch_without_class
            && !self.options.ignores_classes
            && matches!(self.named(ingress), Named::Nothing)
            && self.classes.default_class().is_none();
        is_odd.then(|| {
            let class = &self.options.ingress_class;
            let reason = format!(
                "names no class and is served only because --watch-ingress-without-class is on here: set ingressClassName: \
                 {class} so that a cluster serves it, too"
            );
            Fault::new(Severity::Warning, "spec.ingressClassName", reason)
        })
    }

    /// Whether an Ingress is ours here, but would not be in a cluster.
    pub fn is_classless(&self, ingress: &ObjectName) -> bool {
        let slot = self.objects.get(&reference(ObjectKind::Ingress, ingress));
        let newest = slot.and_then(|slot| slot.newest().or_else(|| slot.in_use()));
        matches!(newest, Some(Object::Ingress(it)) if self.is_ours(it) && self.classless_fault(it).is_some())
    }

    fn named<'a>(&self, ingress: &'a Ingress) -> Named<'a> {
        Named::of(ingress, self.options.ignores_classes)
    }

    fn belonging(&self, ingress: &Ingress) -> Belonging {
        if !self.is_selected(&ingress.metadata.namespace) {
            return Belonging::Another;
        }
        match self.by_name(ingress) {
            // With rules or without (ingress-nginx).
            Belonging::Ours if self.options.disable_catch_all && ingress.spec.default_backend.is_some() => {
                let reason = "--disable-catch-all is on: an Ingress with a default backend is not served";
                Belonging::Nobody(Fault::new(Severity::Warning, "spec.defaultBackend", reason))
            }
            belonging => belonging,
        }
    }

    fn by_name(&self, ingress: &Ingress) -> Belonging {
        let annotation = || format!("metadata.annotations[{CLASS_ANNOTATION}]");
        match self.named(ingress) {
            Named::Field(class) => self.by_class(ingress, class, || "spec.ingressClassName".to_owned()),
            Named::Annotation(class) if *class == self.options.ingress_class => Belonging::Ours,
            Named::Annotation("") => Belonging::Nobody(Fault::new(
                Severity::Warning,
                annotation(),
                format!(
                    "expected the name of a class such as {}, got nothing: while the annotation is there, the Ingress is of no \
                     class, not even the default one",
                    self.options.ingress_class
                ),
            )),
            Named::Annotation(_) if self.options.ignores_classes => Belonging::Another,
            Named::Annotation(class) => match self.by_class(ingress, class, annotation) {
                // As in ingress-nginx: only one value of the annotation is used, whatever classes there are.
                Belonging::Ours => Belonging::Nobody(Fault::new(
                    Severity::Warning,
                    annotation(),
                    format!(
                        "in this annotation only the value {} is accepted: name class {} in spec.ingressClassName instead",
                        self.options.ingress_class,
                        shown(class)
                    ),
                )),
                other => other,
            },
            Named::Nothing if self.options.ignores_classes => self.without_classes(ingress),
            Named::Nothing => self.by_default(ingress),
        }
    }

    /// Whether a class of this name is ours.
    pub(super) fn is_our_class(&self, name: &str, class: &IngressClass) -> bool {
        let is_named = self.options.class_by_name && name == self.options.ingress_class;
        is_named || class.spec.controller == self.options.controller_class
    }

    /// The Ingresses that name a class, in a folder those without a class, too, if it is the default.
    pub(super) fn ingresses_of(&self, class: &str) -> impl Iterator<Item = &ObjectName> {
        let unnamed = self.is_default_here(class).then(|| self.ingresses.of_class(""));
        self.ingresses.of_class(class).chain(unnamed.into_iter().flatten())
    }

    /// Whether an Ingress names a class as its field does.
    pub(super) fn names_class(&self, ingress: &ObjectName, class: &str) -> bool {
        let slot = self.objects.get(&reference(ObjectKind::Ingress, ingress));
        let Some(Object::Ingress(ingress)) = slot.and_then(|slot| slot.newest().or_else(|| slot.in_use()))
        else {
            return false;
        };
        match self.named(ingress) {
            Named::Field(named) => named == class,
            Named::Nothing => self.is_default_here(class),
            Named::Annotation(_) => false,
        }
    }

    /// Whether this is the class of Ingresses without one. In a cluster, the API server sets the field instead.
    fn is_default_here(&self, class: &str) -> bool {
        self.options.folder && self.classes.default_class().is_some_and(|default| **default == *class)
    }

    fn by_class(&self, ingress: &Ingress, class: &str, field: impl FnOnce() -> String) -> Belonging {
        let is_for =
            |members: &Members| members.contain(&ingress.metadata.object_name(), &ingress.metadata.uid);
        let known = self.objects.ingress_class(&ObjectName::new("", class));
        match known.filter(|_| self.classes.kept(class).is_none_or(is_for)) {
            Some(it) if self.is_our_class(class, it) => Belonging::Ours,
            Some(_) => Belonging::Another,
            None if self.assumes(class) => Belonging::Ours,
            None if self.classes.unreadable => Belonging::Nobody(Fault::new(
                Severity::Warning,
                field(),
                format!(
                    "names class {}, but the control plane is forbidden to read IngressClasses: not served until it may \
                     get, list and watch ingressclasses.networking.k8s.io. With --ignore-ingress-classes such fields are ignored",
                    shown(class)
                ),
            )),
            None => Belonging::Nobody(Fault::new(Severity::Warning, field(), self.without_class(class))),
        }
    }

    /// Why an Ingress is not served whose class does not exist, or cannot be read.
    fn without_class(&self, class: &str) -> String {
        let (ours, name) = (&self.options.controller_class, shown(class));
        if let Some(why) = self.objects.unreadable(ObjectKind::IngressClass, &ObjectName::new("", class)) {
            return format!("names class {name}, but that IngressClass cannot be read ({why}): not served");
        }
        // Setting a flag is easier than adding a class to each folder that is tried.
        let or = match self.options.folder && self.classes.are_none() {
            true => ", or --ingress-class names this class",
            false => "",
        };
        format!(
            "names class {name}, but there is no such IngressClass: not served until one exists with spec.controller {ours}{or}"
        )
    }

    /// Which controller an Ingress without the annotation belongs to, if classes are ignored. A class that its field
    /// names may be another controller's; the name in `--ingress-class` means this one.
    fn without_classes(&self, ingress: &Ingress) -> Belonging {
        let ours = &self.options.ingress_class;
        let field = ingress.spec.ingress_class_name.as_deref().filter(|class| !class.is_empty());
        let what = match field {
            _ if self.options.watch_without_class => return Belonging::Ours,
            Some(class) if class != *ours => return Belonging::Another,
            Some(_) => format!("names class {}, which is ignored because", shown(ours)),
            None => "names no class, and".to_owned(),
        };
        let reason = format!(
            "{what} --ignore-ingress-classes is on: it is not served without the annotation {CLASS_ANNOTATION}: {}, or \
             --watch-ingress-without-class",
            shown(ours)
        );
        Belonging::Nobody(Fault::new(Severity::Warning, "spec.ingressClassName", reason))
    }

    fn by_default(&self, ingress: &Ingress) -> Belonging {
        let default = self.classes.default_class();
        // In a cluster the API server sets the field when an Ingress is created, and never later.
        if let Some(class) = default.filter(|_| self.options.folder) {
            return self.by_class(ingress, class, String::new);
        }
        if self.options.watch_without_class {
            return Belonging::Ours;
        }
        let why = match default {
            Some(class) => format!("it was created before IngressClass {class} became the default"),
            None => "no IngressClass is the default".to_owned(),
        };
        let class = &self.options.ingress_class;
        let reason = format!(
            "expected the name of a class such as {class}, got none, and {why}: not served without \
             --watch-ingress-without-class"
        );
        Belonging::Nobody(Fault::new(Severity::Warning, "spec.ingressClassName", reason))
    }

    /// Whether a missing class is taken for ours: most manifests name the class that their cluster had.
    fn assumes(&self, class: &str) -> bool {
        let is_known = !self.classes.are_none() || self.options.ignores_classes;
        self.options.folder && !is_known && class == self.options.ingress_class
    }

    /// The warning about a missing class that is taken for ours.
    pub(super) fn assumed_class(&self, name: &ObjectName) -> Option<Problem> {
        let is_asked_for = || self.ingresses.next_of_class(&name.name, None).is_some();
        // An unreadable class has a problem of its own.
        let is_there = self.objects.unreadable(ObjectKind::IngressClass, name).is_some();
        (!is_there && self.assumes(&name.name) && is_asked_for()).then(|| Problem {
            object: reference(ObjectKind::IngressClass, name).into(),
            field: String::new(),
            severity: Severity::Warning,
            reason: format!(
                "the manifests have no IngressClass, so class {} of --ingress-class is served as if it existed; a cluster needs one",
                name.name
            ),
            location: String::new(),
        })
    }

    /// Sets whether listing IngressClasses is forbidden. Marks the Ingresses that this affects.
    pub fn set_classes_unreadable(&mut self, unreadable: bool) {
        if std::mem::replace(&mut self.classes.unreadable, unreadable) == unreadable {
            return;
        }
        let missing = self.classes.missing(&self.ingresses).map(|class| (class.into(), None));
        self.dirty.classes.extend(missing);
    }

    /// The first Ingress that cannot be assigned because IngressClasses may not be listed, and the class that it names.
    pub fn undecided(&self) -> Option<(ObjectName, String)> {
        let is_unknown = |class: &str| self.classes.unreadable && !self.classes.known.contains_key(class);
        let unknown = self.ingresses.by_class().filter(|(class, _)| is_unknown(class));
        let names = unknown.flat_map(|(class, names)| names.iter().map(move |name| (name, class)));
        let by_field = names.filter(|(name, class)| {
            let slot = self.objects.get(&reference(ObjectKind::Ingress, name));
            slot.into_iter().flat_map(|slot| slot.versions()).any(|version| {
                matches!(version, Object::Ingress(ingress) if matches!(self.named(ingress), Named::Field(it) if it == *class))
            })
        });
        by_field.min().map(|(name, class)| (name.clone(), shown(class)))
    }

    /// Reads an IngressClass again, and marks the Ingresses that depend on it.
    pub(super) fn refresh_class(&mut self, name: &ObjectName) {
        let object = reference(ObjectKind::IngressClass, name);
        let before = (self.classes.are_none(), self.classes.default_class().cloned());
        let is_kept = self.objects.get(&object).is_some_and(Slot::is_kept);
        let class = self.objects.ingress_class(name);
        // The record of a deleted class may be from before another `--controller-class`.
        let class = class.filter(|class| !is_kept || self.is_our_class(&name.name, class)).cloned();
        self.classes.set(&name.name, class.as_deref(), is_kept);
        let after = (self.classes.are_none(), self.classes.default_class().cloned());

        let mut walks = vec![Arc::clone(&name.name)];
        if before.0 != after.0 {
            let assumed = ObjectName::new("", self.options.ingress_class.as_str());
            self.dirty.problems.insert(reference(ObjectKind::IngressClass, &assumed));
            walks.push(assumed.name);
        }
        if before.0 != after.0 && self.options.folder {
            // What is said of a missing class depends on whether there is any.
            walks.extend(self.classes.missing(&self.ingresses).map(Arc::from));
        }
        if let Some(former) = before.1.as_ref().filter(|_| before.1 != after.1) {
            // It may be kept for Ingresses without a class, which have another one now.
            let former = reference(ObjectKind::IngressClass, &ObjectName::new("", Arc::clone(former)));
            self.dirty.holds.insert(former.clone());
            self.dirty.problems.insert(former);
        }
        if before.1 != after.1 || after.1.as_ref() == Some(&name.name) {
            walks.push("".into());
        }
        for class in walks {
            if self.ingresses.next_of_class(&class, None).is_some() {
                self.touched.mark(object.clone());
                self.dirty.classes.insert(class, None);
            }
        }
    }
}

/// A name as shown in messages.
fn shown(class: &str) -> String {
    let is_plain = |it: char| it.is_ascii_graphic();
    match class.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{:?}...", &class[..end]),
        None if class.chars().all(is_plain) => class.to_owned(),
        None => format!("{class:?}"),
    }
}
