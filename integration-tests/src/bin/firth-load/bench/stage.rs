//! What all phases work with: the folder, the control plane, the fleet, and how they are measured.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use integration_tests::load::report::{Goal, Phase};
use integration_tests::load::scale;
use integration_tests::load::usage::Usage;
use integration_tests::load::world::{Board, World};
use integration_tests::load::{Editor, Fleet, Plan, Replica, Scale, Way};
use integration_tests::{Folder, process};
use shared::kind::Lane;
use shared::version::Root;
use tempfile::TempDir;
use tokio::time;

use super::super::args::BenchArgs;

/// The longest that anything may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// After so long without news a change of many files is taken for complete.
const STILL: Duration = Duration::from_secs(1);

/// What a fleet is called.
const NAME: &str = "firth-bench";
/// What is measured.
const CONTROL_PLANE: &str = "firth-control-plane";

/// The fleet that there is, for who shows how far it is.
pub(super) type Now = RefCell<Option<Arc<World>>>;

/// All of it. What is dropped first is what was started last.
pub(super) struct Stage<'a> {
    pub(super) scale: Scale,
    pub(super) seconds: Duration,
    fleet: Option<Fleet>,
    now: &'a Now,
    pub(super) control: Replica,
    pub(super) editor: Editor,
    pub(super) manifests: Manifests,
    /// Folder of the programs.
    programs: PathBuf,
    /// The folder of the authority, if streams are encrypted.
    authority: Option<PathBuf>,
    /// How the fleet speaks to control planes.
    way: Way,
    home: TempDir,
    /// Edits that did not arrive everywhere.
    pub(super) lost: usize,
    /// The 99th of a hundred edits when nothing else happens, until the last proxy has it: in milliseconds.
    pub(super) idle: Option<f64>,
}

/// What control planes read.
pub(super) struct Manifests {
    folder: Folder,
    scale: Scale,
    /// Versions of the settings, and of Ingresses, so far.
    turn: usize,
}

impl Manifests {
    /// The next version of the settings.
    pub(super) fn change_settings(&mut self) {
        self.turn += 1;
        self.folder.apply(&scale::settings(self.turn));
    }

    /// The next version of the first Ingress.
    pub(super) fn change_route(&mut self) {
        self.turn += 1;
        self.folder.apply_to_part(scale::ROUTES, &self.scale.changed_ingress(0, self.turn));
    }

    /// The next version of all Ingresses, in one step: each commit is a version, and a history has a thousand.
    pub(super) fn change_all_routes(&mut self) {
        self.turn += 1;
        let numbers = 0..self.scale.services;
        let changed = numbers.map(|number| self.scale.changed_ingress(number, self.turn));
        self.folder.replace_part(scale::ROUTES, changed);
    }
}

/// A moment, for what was spent since.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: Instant,
    bytes: (u64, u64),
    control: Usage,
    fleet: Usage,
}

impl Mark {
    /// Bytes from control planes between another moment and this.
    pub(super) fn received_since(&self, before: &Self) -> u64 {
        self.bytes.0 - before.bytes.0
    }
}

/// What was spent between a moment and now.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    pub(super) time: Duration,
    /// From control planes, and to them.
    pub(super) bytes: (u64, u64),
    /// Processor time of the control plane.
    pub(super) control: Duration,
    /// Processor time of the fleet.
    pub(super) fleet: Duration,
}

impl<'a> Stage<'a> {
    /// Writes the manifests and starts a control plane: the first phase.
    pub(super) async fn open(
        args: &BenchArgs,
        programs: &Path,
        now: &'a Now,
    ) -> anyhow::Result<(Self, Phase)> {
        let scale = args.scale();
        let home = TempDir::new()?;
        process::remove_at_the_end(home.path());
        eprintln!(
            "{} Services, {} endpoints, {} proxies: writing manifests",
            scale.services, scale.endpoints, scale.proxies
        );
        let folder = Folder::within(home.path());
        scale.write(&folder);
        let editor = Editor::open(folder.path(), 1.0)?;
        eprintln!("1. start");
        let begun = Instant::now();
        let authority = args.tls.then(|| home.path().join("authority"));
        let program = programs.join(CONTROL_PLANE);
        let mut control = Replica::start(&program, folder.path(), home.path(), authority.as_deref())?;
        let took = control.ready(PATIENCE).await? - begun;
        let usage = control.usage()?;
        let mut phase = Phase::new(1, "start of the control plane");
        phase.one("exec to ready", "ms", millis(took), goal(&scale, 1_000.0, 3_000.0));
        phase.one("processor time", "ms", millis(usage.cpu), None);
        phase.one("memory", "MB", usage.memory as f64 / 1e6, goal(&scale, 40.0, 120.0));
        phase.one("memory, the most", "MB", usage.peak as f64 / 1e6, None);
        let way = match &authority {
            Some(authority) => {
                let token = token(&programs.join("firth"), authority)?;
                let way = Way::by_token(control.listen(), &token, NAME).await;
                way.map_err(|status| anyhow::anyhow!("no certificate: {status}"))?
            }
            None => Way::Plain,
        };
        let stage = Self {
            scale,
            seconds: args.seconds,
            fleet: None,
            now,
            control,
            editor,
            manifests: Manifests { folder, scale, turn: 0 },
            programs: programs.to_owned(),
            authority,
            way,
            home,
            lost: 0,
            idle: None,
        };
        Ok((stage, phase))
    }

    /// Another control plane over the same folder, which is ready.
    pub(super) async fn replica(&self) -> io::Result<Replica> {
        let (program, folder) = (self.programs.join(CONTROL_PLANE), self.manifests.folder.path());
        let mut replica = Replica::start(&program, folder, self.home.path(), self.authority.as_deref())?;
        replica.ready(PATIENCE).await?;
        Ok(replica)
    }

    /// So many proxies that know these control planes, in place of those that there were.
    pub(super) async fn gather(&mut self, to: &[SocketAddr], proxies: usize) -> anyhow::Result<Arc<World>> {
        self.leave().await;
        let plan = Plan {
            proxies,
            control_planes: to.to_vec(),
            way: self.way.clone(),
            name: NAME.to_owned(),
            group: "default".to_owned(),
            pace: None,
        };
        let fleet = Fleet::start(&plan)?;
        let world = Arc::clone(fleet.world());
        self.now.replace(Some(Arc::clone(&world)));
        self.fleet = Some(fleet);
        Ok(world)
    }

    /// The whole fleet at the one control plane, in sync: that which is there, or a new one.
    pub(super) async fn settled(&mut self) -> anyhow::Result<Arc<World>> {
        let world = match &self.fleet {
            Some(fleet) => Arc::clone(fleet.world()),
            None => self.gather(&[self.control.listen()], self.scale.proxies).await?,
        };
        let proxies = self.scale.proxies;
        until(&world, "all proxies are in sync", |board| board.in_sync == proxies).await?;
        world.board().take();
        Ok(world)
    }

    /// Everybody says goodbye.
    pub(super) async fn leave(&mut self) {
        self.now.replace(None);
        if let Some(fleet) = self.fleet.take() {
            fleet.leave().await;
        }
    }

    /// All streams are cut.
    pub(super) fn cut(&self) {
        self.fleet.iter().for_each(Fleet::cut);
    }

    pub(super) fn mark(&self) -> io::Result<Mark> {
        Ok(Mark {
            at: Instant::now(),
            bytes: self.fleet.as_ref().map(Fleet::bytes).unwrap_or_default(),
            control: self.control.usage()?,
            fleet: Usage::of(std::process::id())?,
        })
    }

    pub(super) fn since(&self, mark: &Mark) -> io::Result<Spent> {
        let now = self.mark()?;
        Ok(Spent {
            time: now.at - mark.at,
            bytes: (now.bytes.0 - mark.bytes.0, now.bytes.1 - mark.bytes.1),
            control: now.control.cpu.saturating_sub(mark.control.cpu),
            fleet: now.fleet.cpu.saturating_sub(mark.fleet.cpu),
        })
    }
}

/// What `firth token` prints.
fn token(firth: &Path, authority: &Path) -> anyhow::Result<String> {
    let done = Command::new(firth).arg("token").arg("--ca-dir").arg(authority).output();
    let done = done.with_context(|| firth.display().to_string())?;
    anyhow::ensure!(done.status.success(), "firth token: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

/// Waits until figures are so, and says when that was.
pub(super) async fn until(
    world: &World,
    what: &str,
    is_so: impl FnMut(&mut Board) -> bool,
) -> anyhow::Result<Instant> {
    let at = time::timeout(PATIENCE, world.until(is_so)).await;
    at.with_context(|| format!("not so after {PATIENCE:?}: {what}"))
}

/// Waits until all have the same configuration, and not this one.
pub(super) async fn past(world: &World, before: Option<Root>, proxies: usize) -> anyhow::Result<Instant> {
    until(world, "all proxies have the change", |board| {
        let root = board.root(Lane::Config);
        root != before && root.is_some_and(|root| board.at(Lane::Config, root) == proxies)
    })
    .await
}

/// The same, once nothing more comes: of a change that came in parts. Says when the last one had come.
pub(super) async fn past_all(world: &World, before: Option<Root>, proxies: usize) -> anyhow::Result<Instant> {
    let mut at = past(world, before, proxies).await?;
    loop {
        let last = world.board().root(Lane::Config);
        match time::timeout(STILL, past(world, last, proxies)).await {
            Ok(moved) => at = moved?,
            Err(_) if world.board().root(Lane::Config) == last => return Ok(at),
            Err(_) => {}
        }
    }
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The most that a figure may be at the scale.
pub(super) fn goal(scale: &Scale, small: f64, large: f64) -> Option<Goal> {
    Goal::most(if scale.is_large() { large } else { small })
}
