//! A proxy that starts with state from disk.

use shared::delta::Removal;
use shared::version::Source;

use super::*;
use crate::journal::StoredLane;

/// What a proxy stores at times when it may.
pub(super) struct Kept {
    config: StoredLane,
    live: StoredLane,
}

impl Kept {
    pub(super) fn of(proxy: &Proxy) -> Option<Self> {
        let places = proxy.session.places()?;
        let lane = |lane, position| StoredLane::of(&proxy.writer, lane, position);
        Some(Self { config: lane(Lane::Config, places.config), live: lane(Lane::Live, places.live) })
    }
}

impl Proxy {
    /// Another process with the stored state of this one.
    pub(super) fn reborn(self) -> Self {
        self.reborn_with(true)
    }

    /// `whole`: nothing of LIVE was lost.
    fn reborn_with(self, whole: bool) -> Self {
        let mut next = Self::new();
        let Some(kept) = self.kept else { return next };
        let mut live = kept.live.has.clone();
        if let Some(lost) = kept.live.has.iter().next().filter(|_| !whole) {
            live.remove(&lost.key);
        }
        next.writer.apply(next.writer.first(Lane::Live, live));
        next.writer.apply(next.writer.first(Lane::Config, kept.config.has.clone()));
        next.session.resume(Lane::Config, kept.config.position, whole);
        next.session.resume(Lane::Live, kept.live.position.filter(|_| whole), whole);
        Self { kept: Some(kept), ..next }
    }

    fn modes(&mut self, model: &mut Model) -> Vec<Mode> {
        self.connect(model);
        let Some(Control::Welcome(welcome)) = model.next(3) else { panic!("a welcome comes first") };
        let modes = welcome.lanes.iter().map(|start| start.mode()).collect();
        assert_eq!(self.hear_anything(Control::Welcome(welcome)).close, None);
        modes
    }
}

#[test]
fn nothing_is_sent_to_one_that_kept_everything() {
    let (mut model, proxy) = in_sync();
    let mut next = proxy.reborn();
    assert!(next.session.is_complete() && next.session.is_kept());
    model.restart();
    assert_eq!(next.modes(&mut model), [Mode::InSync; 2]);
    assert!(!next.session.is_kept());
    assert_eq!(next.session.places().unwrap().config.0, model.lineage);
    assert_eq!(next.session.source(), Some(Source([5; 16])));
    next.catch_up(&mut model);
    next.check(&model);
}

#[test]
fn partially_restored_state_is_requested_before_it_is_stored_again() {
    let (mut model, proxy) = in_sync();
    let mut next = proxy.reborn_with(false);
    assert!(!next.session.is_complete() && next.session.is_kept());
    assert_eq!(next.session.places(), None);
    assert_eq!(next.modes(&mut model), [Mode::Full, Mode::InSync]);
    assert_eq!(next.session.places(), None, "nothing is kept before all of it is there");
    next.catch_up(&mut model);
    assert!(!next.session.is_kept() && next.session.places().is_some());
    next.check(&model);
}

/// LIVE has come, and the CONFIG that goes with it has not: the route leads to what LIVE has lost.
#[test]
fn one_that_starts_between_live_and_its_config_serves_what_was_served() {
    let (mut model, mut proxy) = in_sync();
    let leaves = |kind, key: &str| Removal { key: ResourceKey::new(kind, key), gone: false };
    let slice = leaves(Kind::Endpoints, "ns/e");
    model.world.live.remove(&slice.key);
    model.live.deltas.push(Delta { up: Vec::new(), removed: vec![slice] });
    let config = [leaves(Kind::Route, "ingress/ns/i/a.test"), leaves(Kind::Backend, "ns/s/80")];
    model.world.config.change([], config.iter().map(|removal| removal.key.clone()));
    model.config.deltas.push(Delta { up: Vec::new(), removed: config.to_vec() });

    let message = model.next(9).unwrap();
    assert!(matches!(&message, Control::Batch(batch) if batch.lane == Lane::Live.to_wire() && !batch.more));
    proxy.hear(message);
    assert!(proxy.writer.has(Lane::Live).is_empty());
    let served = dump(&proxy.writer.tables().current());
    let mut reborn = proxy.reborn();
    assert_eq!(dump(&reborn.writer.tables().current()), served);
    assert!(reborn.session.is_complete());
    assert_eq!(reborn.modes(&mut model), [Mode::Full, Mode::Cursor], "that LIVE was never in the log");
    reborn.catch_up(&mut model);
    reborn.check(&model);
    assert!(reborn.kept.is_some_and(|kept| kept.live.position.is_some()), "in sync, it is stored as it is");
}
