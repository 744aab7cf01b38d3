//! Where objects are: what was made of the newest version of each, and from which place of the logs on that is offered.
//!
//! Written by the pipeline with each commit, for what that commit was told and nothing else; read by whoever asks on how
//! many proxies an object is.
//!
//! **Invariant:** whoever has acknowledged both places of an object had a state with all that was made of its newest version,
//! but for what a pin holds back. A place may be later than needed, and never earlier.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use shared::name::ObjectName;
use shared::version::{Root, Seq};

use crate::objects::{ObjectKind, ObjectRef};

/// What was made of the newest version of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// The API server's count of that version. Empty in a folder, and of what cannot be read.
    pub resource_version: Arc<str>,
    /// Unique for ever. Empty in a folder.
    pub uid: Arc<str>,
    /// That version is not served, for what is wrong with it.
    pub is_rejected: bool,
    /// It is served, or an older one in its place.
    pub is_served: bool,
    /// Of an Ingress: the hosts that it names.
    pub hosts: Arc<[Arc<str>]>,
    /// Of an Ingress: keys of the Backends that it refers to, sorted, each once.
    pub backends: Arc<[Arc<str>]>,
    /// Of an Ingress: keys of the Materials that its annotations name.
    pub materials: Arc<[Arc<str>]>,
}

/// What a commit says of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// This is its newest version now.
    Made(Made),
    /// Its endpoints changed, and nothing else.
    Moved,
    /// It is no more, or nobody's here.
    Gone,
}

/// An object, and since when it is as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// What was made of it.
    pub made: Made,
    /// CONFIG's place from which on that is offered.
    pub config: Seq,
    /// LIVE's place from which on that is offered.
    pub live: Seq,
    /// The CONFIG root there.
    pub version: Root,
}

/// All Ingresses that are ours, all Services and Secrets. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct Places(OrdMap<ObjectRef, Arc<Placed>>);

impl Places {
    /// Takes in what commits said that led to these places. False where that is nothing.
    pub fn settle(&mut self, news: Vec<(ObjectRef, News)>, config: Seq, live: Seq, version: Root) -> bool {
        let is_any = !news.is_empty();
        for (object, news) in news {
            match news {
                News::Made(made) => {
                    self.0.insert(object, Arc::new(Placed { made, config, live, version }));
                }
                News::Moved => {
                    if let Some(placed) = self.0.get_mut(&object) {
                        Arc::make_mut(placed).live = live;
                    }
                }
                News::Gone => {
                    self.0.remove(&object);
                }
            }
        }
        is_any
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Placed>)> {
        self.0.iter()
    }

    /// Names of those of a kind that are in one of the two and not the same in the other.
    pub fn differs(&self, other: &Self, kind: ObjectKind) -> Vec<ObjectName> {
        let changed = self.0.diff(&other.0).map(|item| match item {
            DiffItem::Add(object, _) | DiffItem::Remove(object, _) => object,
            DiffItem::Update { new: (object, _), .. } => object,
        });
        changed.filter(|object| object.kind == kind).map(|object| object.name.clone()).collect()
    }

    /// An object that is there.
    pub fn get(&self, object: &ObjectRef) -> Option<&Arc<Placed>> {
        self.0.get(object)
    }
}
