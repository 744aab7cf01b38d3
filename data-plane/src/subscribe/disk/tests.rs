use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use bytes::Bytes;
use shared::proto::config;
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::lane_start::Mode;
use shared::version::{Lineage, Seq, Source};

use super::*;
use crate::journal::{Started, Stats};
use crate::subscribe::session::Identity;

const LINEAGE: Lineage = Lineage([3; 16]);

fn binding(known: u8) -> Binding {
    Binding { source: None, group: "default".into(), known: vec![[known; 32]] }
}

fn start(dir: &Path, stats: &Arc<Stats>) -> Started {
    Journal::start(dir.to_owned(), None, binding(1), Arc::clone(stats)).unwrap()
}

fn loaded(started: &mut Started) -> Option<Loaded> {
    loop {
        match started.loaded.try_recv().unwrap() {
            Some(loaded) => return loaded,
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A session that has everything (an empty state); welcomed if `welcome`.
fn session(writer: &mut Writer, welcome: bool) -> Session {
    let mut session = Session::new(Identity::default(), shared::clock::now);
    for lane in Lane::ALL {
        session.resume(lane, Some((LINEAGE, Seq(1))), true);
    }
    session.hello(writer);
    if welcome {
        let start =
            |lane: Lane| config::LaneStart { lane: lane.to_wire(), mode: Mode::InSync.into(), seq: 1 };
        let welcome = config::Welcome {
            lineage: LINEAGE.to_bytes(),
            schema: 1,
            lanes: Lane::ALL.map(start).to_vec(),
            claim: Bytes::from_static(&[6; 16]),
            source: Bytes::from_static(&[5; 16]),
            ..config::Welcome::default()
        };
        let message = config::ControlMessage { message: Some(Control::Welcome(welcome)) };
        assert_eq!(session.on(message, writer).close, None);
    }
    session
}

#[test]
fn a_proxy_opens_as_soon_as_it_has_what_nobody_beside_it_has() {
    let start = |missing: Missing| Some(Arc::new(FromDisk { written: SystemTime::UNIX_EPOCH, missing }));
    for (start, alone, expected) in [
        (None, true, Opening::WhenComplete),
        (None, false, Opening::WhenComplete),
        (start(Missing::default()), true, Opening::Now),
        (start(Missing::default()), false, Opening::Now),
        (start(Missing::one()), true, Opening::After(WITHOUT_KEYS)),
        (start(Missing::one()), false, Opening::WhenComplete),
    ] {
        let disk = Disk { start: start.clone(), alone, ..Disk::default() };
        assert_eq!(disk.opening(), expected, "{start:?}, alone: {alone}");
    }
    assert_eq!(Disk::default().start(), None);
}

#[test]
fn a_state_is_given_once_and_again_under_another_name() {
    let (dir, stats) = (tempfile::tempdir().unwrap(), Arc::new(Stats::default()));
    let mut started = start(dir.path(), &stats);
    assert!(loaded(&mut started).is_none());
    let Started { journal, thread, .. } = started;
    let mut disk = Disk::new(journal, None);
    let mut writer = Writer::new();
    let now = shared::clock::now();
    // No control plane has confirmed this state.
    let silent = session(&mut writer, false);
    disk.keep(&silent, &writer, now, || panic!("nothing is asked"));

    let session = session(&mut writer, true);
    let written = |count: u64| {
        while stats.states.load(Ordering::Relaxed) < count {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(stats.states.load(Ordering::Relaxed), count);
    };
    disk.keep(&session, &writer, now, || binding(1));
    written(1);
    // The identity of the control plane is looked up once in a while, not with each change.
    disk.keep(&session, &writer, now + LOOK / 2, || panic!("it is known"));
    disk.keep(&session, &writer, now + LOOK, || binding(1));
    disk.keep(&session, &writer, now + 2 * LOOK, || binding(2));
    written(2);
    drop(disk);
    thread.join().unwrap();

    let mut again = Journal::start(dir.path().to_owned(), None, binding(2), Arc::default()).unwrap();
    let found = loaded(&mut again).unwrap();
    let disk = Disk::new(again.journal, Some(&found));
    assert_eq!((disk.opening(), found.config), (Opening::Now, Some((LINEAGE, Seq(1)))));
    drop(disk);
    again.thread.join().unwrap();
    // The stored state identifies its owner: the source came with the Welcome.
    let mut stranger = Journal::start(dir.path().to_owned(), None, binding(9), Arc::default()).unwrap();
    assert!(loaded(&mut stranger).is_none());
    drop(stranger.journal);
    stranger.thread.join().unwrap();
    assert_eq!(session.source(), Some(Source([5; 16])));
}
