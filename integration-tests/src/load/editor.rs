//! Edits EndpointSlices of a folder of manifests at a rate, and measures when the fleet has each edit.

use std::fs;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use shared::kind::{Kind, ResourceKey};
use tokio::time::{self, MissedTickBehavior};

use super::world::World;

/// An edit that is not everywhere after this is not looked for any longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The slices of a folder that can be edited: those that are alone in a file.
#[derive(Debug)]
pub struct Editor {
    slices: Vec<Slice>,
    turn: usize,
    pace: Duration,
}

#[derive(Debug)]
struct Slice {
    path: PathBuf,
    draft: PathBuf,
    key: ResourceKey,
    object: Value,
}

impl Editor {
    /// Of a folder, so many edits a second.
    ///
    /// # Errors
    /// If it cannot be read, or has no file with one EndpointSlice that has an IPv4 endpoint.
    pub fn open(folder: &Path, rate: f64) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(invalid("expected a rate above 0"));
        }
        let mut slices = Vec::new();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            slices.extend(fs::read_to_string(&path).ok().and_then(|text| Slice::read(&path, &text)));
        }
        slices.sort_by(|a, b| a.path.cmp(&b.path));
        if slices.is_empty() {
            let said =
                format!("{}: no file has one EndpointSlice, as JSON, and nothing else", folder.display());
            return Err(invalid(&said));
        }
        Ok(Self { slices, turn: 0, pace: Duration::from_secs_f64(1.0 / rate) })
    }

    /// How many slices there are.
    pub fn slices(&self) -> usize {
        self.slices.len()
    }

    /// From now on so many edits a second.
    ///
    /// # Panics
    /// If that is none.
    pub fn set_rate(&mut self, rate: f64) {
        self.pace = Duration::from_secs_f64(1.0 / rate);
    }

    /// Edits until `end`, one slice after another; what `everybody` is sent is timed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub async fn run(
        &mut self,
        world: &World,
        everybody: usize,
        end: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let mut tick = time::interval(self.pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                _ = tick.tick() => self.step(world, everybody)?,
            }
        }
    }

    /// Makes one edit now, of the next slice, unless that one is being edited.
    ///
    /// # Errors
    /// If a file cannot be written: no edit was made then, and none is looked for.
    pub fn step(&mut self, world: &World, everybody: usize) -> io::Result<()> {
        let turn = self.turn;
        self.turn += 1;
        let count = self.slices.len();
        let slice = &mut self.slices[turn % count];
        world.board().edits.give_up(PATIENCE, Instant::now());
        if world.board().edits.is_open(&slice.key) {
            return Ok(());
        }
        let address = slice.change(turn);
        // The draft takes its time; the edit is the rename.
        let made = fs::write(&slice.draft, slice.object.to_string()).and_then(|()| {
            world.board().edits.begin(slice.key.clone(), address, everybody, Instant::now());
            fs::rename(&slice.draft, &slice.path)
        });
        made.inspect_err(|_| {
            world.board().edits.withdraw(&slice.key);
            let _ = fs::remove_file(&slice.draft);
        })
    }
}

impl Slice {
    fn read(path: &Path, text: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(text).ok()?;
        let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let is_slice = part("/kind") == Some("EndpointSlice") && part("/addressType") == Some("IPv4");
        part("/endpoints/0/addresses/0").filter(|_| is_slice)?;
        let key = format!("{}/{}", part("/metadata/namespace")?, part("/metadata/name")?);
        let draft = path.with_file_name(format!(".{}.draft", path.file_name()?.to_str()?));
        Some(Self { path: path.to_owned(), draft, key: ResourceKey::new(Kind::Endpoints, key), object })
    }

    /// Another address for the first endpoint: one that no slice had before.
    fn change(&mut self, turn: usize) -> Ipv4Addr {
        let [_, a, b, c] = u32::try_from(turn % (1 << 24)).unwrap_or_default().to_be_bytes();
        let new = Ipv4Addr::new(11, a, b, c);
        if let Some(address) = self.object.pointer_mut("/endpoints/0/addresses/0") {
            *address = new.to_string().into();
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Folder, objects};

    #[test]
    fn each_edit_is_another_address_of_the_next_slice() {
        let folder = Folder::with(&[
            objects::service("default", "a"),
            objects::slice("default", "a", "1", &["10.0.0.1:80".parse().unwrap()]),
            objects::slice("default", "b", "1", &["10.0.0.2:80".parse().unwrap()]),
            objects::slice("default", "none", "1", &[]),
        ]);
        let mut editor = Editor::open(folder.path(), 5.0).unwrap();
        assert_eq!(editor.slices(), 2, "those that have an endpoint");
        let world = World::default();
        for _ in 0..3 {
            editor.step(&world, 1).unwrap();
        }
        assert_eq!(world.board().edits.open(), 2, "the third is of one that is still under way");
        let text = fs::read_to_string(&editor.slices[1].path).unwrap();
        assert!(text.contains("11.0.0.1"), "{text}");
        assert!(fs::read_to_string(&editor.slices[0].path).unwrap().contains("11.0.0.0"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "no drafts are left");
        assert!(Editor::open(folder.path(), 0.0).is_err());
        assert!(Editor::open(Folder::new().path(), 1.0).is_err());
    }

    #[test]
    fn an_edit_that_cannot_be_written_is_not_looked_for() {
        let folder = Folder::with(&[objects::slice("default", "a", "1", &["10.0.0.1:80".parse().unwrap()])]);
        let mut editor = Editor::open(folder.path(), 5.0).unwrap();
        let (world, path) = (World::default(), editor.slices[0].path.clone());
        // A folder in its place: the draft can be written, the rename is refused.
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(editor.step(&world, 1).is_err());
        assert!(world.board().edits.is_idle(), "nobody will ever have it");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(editor.step(&world, 1).is_err() && world.board().edits.is_idle());
    }
}
