//! A proxy that starts with state from disk.

use shared::snapshot::Snapshot;
use shared::version::Source;

use super::*;

/// What a proxy stores at times when it may.
pub(super) struct Kept {
    places: Places,
    config: Snapshot,
    live: Snapshot,
}

impl Kept {
    pub(super) fn of(proxy: &Proxy) -> Option<Self> {
        let has = |lane| proxy.writer.has(lane).clone();
        let places = proxy.session.places()?;
        Some(Self { places, config: has(Lane::Config), live: has(Lane::Live) })
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
        let mut live = kept.live.clone();
        if let Some(lost) = kept.live.iter().next().filter(|_| !whole) {
            live.remove(&lost.key);
        }
        next.writer.apply(next.writer.first(Lane::Live, live));
        next.writer.apply(next.writer.first(Lane::Config, kept.config.clone()));
        next.session.resume(Lane::Config, Some(kept.places.config), whole);
        next.session.resume(Lane::Live, whole.then_some(kept.places.live), whole);
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
