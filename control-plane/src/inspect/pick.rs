//! Resolves the kind, version and resource that a request names. If one does not exist, the error names it.

use std::collections::HashSet;
use std::sync::Arc;

use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::name::ObjectName;
use shared::proto::inspect;
use shared::snapshot::Snapshot;
use shared::version::Root;
use tonic::Status;

use crate::objects::{ObjectKind, ObjectRef};
use crate::store::{Head, NotOne};

/// Minimum of a version's hex digits.
const DIGITS_MIN: usize = 6;
/// Maximum of a version's hex digits.
const DIGITS_MAX: usize = 32;

/// One version of the configuration; the newest one has LIVE resources, too.
pub(super) struct Picked<'a> {
    /// Its root.
    pub(super) root: Root,
    config: &'a Snapshot,
    live: Option<&'a Snapshot>,
}

/// Parses the name of a kind.
pub(super) fn kind(name: &str) -> Result<Kind, Status> {
    Kind::parse(name).ok_or_else(|| {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        Status::invalid_argument(format!(
            "unknown kind {:?}: expected one of {}",
            brief(name),
            known.join(", ")
        ))
    })
}

/// The kinds of objects with a placement.
const PLACED: [ObjectKind; 3] = [ObjectKind::Ingress, ObjectKind::Service, ObjectKind::Secret];

/// The object that a request names.
pub(super) fn object(asked: &inspect::StatusRequest) -> Result<ObjectRef, Status> {
    let inspect::StatusRequest { kind, namespace, name } = asked;
    let kind = PLACED.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(kind)).ok_or_else(|| {
        Status::invalid_argument(format!("expected ingress, service or secret, got {:?}", brief(kind)))
    })?;
    // As in names of objects: anything else cannot be the name of one.
    let is_name = |text: &str| !text.is_empty() && text.len() <= 253 && !text.contains('/');
    if !is_name(namespace) || !is_name(name) {
        return Err(Status::invalid_argument(format!(
            "expected a namespace and a name, got {:?} and {:?}",
            brief(namespace),
            brief(name)
        )));
    }
    Ok(ObjectRef { kind, name: ObjectName::new(namespace.as_str(), name.as_str()) })
}

/// The same; `None` if empty.
pub(super) fn optional_kind(name: &str) -> Result<Option<Kind>, Status> {
    match name {
        "" => Ok(None),
        name => kind(name).map(Some),
    }
}

/// Parses a position in a list of resources: `route ingress/default/web/a.test`.
pub(super) fn place(token: &str) -> Option<(Kind, &str)> {
    let (kind, key) = token.split_once(' ')?;
    Some((Kind::parse(kind)?, key))
}

/// The version with this prefix; if empty, the newest.
pub(super) fn version<'a>(head: &'a Head, digits: &str) -> Result<Picked<'a>, Status> {
    let newest =
        Picked { root: head.config.root, config: &head.config.snapshot, live: Some(&head.live.snapshot) };
    if digits.is_empty() {
        return Ok(newest);
    }
    let lower = digits.to_ascii_lowercase();
    let is_hex = lower.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hex || !(DIGITS_MIN..=DIGITS_MAX).contains(&lower.len()) {
        return Err(Status::invalid_argument(format!(
            "expected {DIGITS_MIN} to {DIGITS_MAX} hex digits of a version, got {:?}",
            brief(digits)
        )));
    }
    match head.history.find(&lower) {
        Ok(version) if version.root == newest.root => Ok(newest),
        Ok(version) => Ok(Picked { root: version.root, config: &version.snapshot, live: None }),
        // The history of a process that starts while a version is pinned may have only later ones.
        Err(NotOne::None) if newest.root.to_string().starts_with(&lower) => Ok(newest),
        Err(NotOne::None) => Err(Status::not_found(absent(head, &lower))),
        Err(NotOne::Several) => {
            Err(Status::invalid_argument(format!("several versions begin with {lower}: give more digits")))
        }
    }
}

/// Two versions to compare. Defaults: the newest, and the one before the other; while a version is pinned, that and the
/// compiled one.
pub(super) fn two<'a>(head: &'a Head, from: &str, to: &str) -> Result<(Picked<'a>, Picked<'a>), Status> {
    if let (Some(_), true, true) = (&head.pin, from.is_empty(), to.is_empty()) {
        // Shows what the end of the pin would change.
        let compiled = Picked { root: head.compiled.root(), config: &head.compiled, live: None };
        return Ok((version(head, from)?, compiled));
    }
    let to = version(head, to)?;
    if !from.is_empty() {
        return Ok((version(head, from)?, to));
    }
    let older = head
        .history
        .newest_first()
        .skip_while(|version| version.root != to.root)
        .find(|it| it.root != to.root);
    let older = older
        .ok_or_else(|| Status::not_found(format!("no version before {} is remembered", to.root.short())))?;
    Ok((Picked { root: older.root, config: &older.snapshot, live: None }, to))
}

impl Picked<'_> {
    /// Its root and its CONFIG resources, as owned values.
    pub(super) fn into_version(self) -> (Root, Snapshot) {
        (self.root, self.config.clone())
    }

    /// The resources of a lane; `None` if this version has none of that lane and no kind of it was requested.
    pub(super) fn snapshot(&self, lane: Lane, kind: Option<Kind>) -> Result<Option<&Snapshot>, Status> {
        match (lane, self.live) {
            (Lane::Config, _) => Ok(Some(self.config)),
            (Lane::Live, Some(live)) => Ok(Some(live)),
            (Lane::Live, None) => match kind {
                Some(kind) if kind.lane() == Lane::Live => Err(Status::invalid_argument(format!(
                    "{kind} has no history: only the newest version is known, {} is not it",
                    self.root.short()
                ))),
                _ => Ok(None),
            },
        }
    }

    /// One resource.
    pub(super) fn entry(&self, kind: Kind, key: &str) -> Result<&Arc<Entry>, Status> {
        self.snapshot(kind.lane(), Some(kind))?
            .and_then(|snapshot| snapshot.get(&ResourceKey::new(kind, key)))
            .ok_or_else(|| {
                Status::not_found(format!("no {kind} {:?} in version {}", brief(key), self.root.short()))
            })
    }
}

/// Limit of the versions that are listed if one does not exist.
const NAMED: usize = 10;

/// The error for a version that does not exist, with those that do.
fn absent(head: &Head, digits: &str) -> String {
    let mut seen = HashSet::new();
    let versions = head.history.newest_first().filter(|version| seen.insert(version.root));
    let mut roots: Vec<_> = versions.map(|version| version.root.short()).collect();
    let more = roots.len().saturating_sub(NAMED);
    roots.truncate(NAMED);
    let there = match (roots.is_empty(), more) {
        (true, _) => "it has none yet".to_owned(),
        (_, 0) => format!("it has {}", roots.join(", ")),
        _ => format!("it has {} and {more} older ones", roots.join(", ")),
    };
    format!("no version {digits} in the history of this replica: {there}")
}

/// At most 253 characters of the request: they are returned in a header.
fn brief(text: &str) -> String {
    text.chars().take(253).collect()
}
