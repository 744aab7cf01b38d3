use std::fs::{Permissions, set_permissions};

use shared::resource::Resource;

use super::*;
use crate::table::world::{World, certificate, entry, slice};

/// A folder in memory, if this machine has one.
fn memory() -> Option<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").ok()
}

fn state(world: &World) -> StoredState {
    let mut state = StoredState::default();
    (state.config.has, state.live.has) = (world.config.clone(), world.live.clone());
    state
}

#[test]
fn keys_come_back_from_memory_and_damaged_ones_do_not() {
    let Some(shm) = memory() else { return };
    let dir = shm.path().join("keys");
    let mut world = World::default();
    let first = entry("ns/a", Resource::Certificate(certificate(&["a.test"])));
    world.live.insert(Arc::clone(&first));
    world.live.insert(slice("ns/e1", "ns/s1", &[1]));
    let before = state(&world);
    let mut keys = Keys::new(dir.clone());
    keys.save(None, &before).unwrap();
    let second = entry("ns/b", Resource::Certificate(certificate(&["b.test"])));
    world.live.insert(Arc::clone(&second));
    let size = || fs::metadata(dir.join(FILE)).unwrap().len();
    let one = size();
    keys.save(Some(&before), &state(&world)).unwrap();
    assert!(size() > one);

    let found = Keys::new(dir.clone()).read();
    assert_eq!(found.len(), 2, "secrets alone");
    assert_eq!((&found[&first.version], &found[&second.version]), (&first, &second));
    assert!(matches!(
        Keys::new(dir.clone()).save(None, &before),
        Err(KeysError::Lock(LockError::Taken { .. }))
    ));

    let mut bytes = fs::read(dir.join(FILE)).unwrap();
    let at = bytes.len() - 5;
    bytes[at] ^= 1;
    assert_eq!(read(&bytes).len(), 1);
    bytes[30] ^= 1;
    assert!(read(&bytes).is_empty());
}

#[test]
fn keys_are_not_written_where_they_stay_or_others_look() {
    // The source folder is usually on a disk; on a machine that builds in memory this cannot be tested.
    let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if let Err(error) = Keys::new(disk.path().join("keys")).save(None, &StoredState::default()) {
        assert!(matches!(error, KeysError::OnDisk(_)), "{error}");
        assert!(!disk.path().join("keys").join(FILE).exists());
    }
    let Some(shm) = memory() else { return };
    set_permissions(shm.path(), Permissions::from_mode(0o750)).unwrap();
    let error = Keys::new(shm.path().to_owned()).save(None, &StoredState::default()).unwrap_err();
    assert!(matches!(error, KeysError::Open { mode: 0o750, .. }), "{error}");
    set_permissions(shm.path(), Permissions::from_mode(0o700)).unwrap();
    Keys::new(shm.path().to_owned()).save(None, &StoredState::default()).unwrap();
}
