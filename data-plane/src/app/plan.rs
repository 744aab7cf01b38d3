//! What the arguments ask for, checked: nothing is bound or started yet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context as _, bail};
use shared::address::AddressSet;
use shared::admin::Local;
use shared::{budget, socket};
use tokio::sync::watch;
use tracing::warn;

use super::identity;
use crate::access_log::Target;
use crate::args::Args;
use crate::listen::PublicPorts;
use crate::local::{Budgets, Limits};
use crate::subscribe::{Subscription, View};

/// File descriptors that the process needs besides those of connections.
const DESCRIPTORS: u64 = 256;

/// The parts of a data plane, before it starts.
pub(super) struct Plan {
    pub(super) subscription: Subscription,
    pub(super) view: watch::Receiver<View>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) key_dir: Option<PathBuf>,
    pub(super) http: Vec<SocketAddr>,
    pub(super) https: Vec<SocketAddr>,
    pub(super) stream_address: Option<IpAddr>,
    pub(super) ports: PublicPorts,
    pub(super) admin: Option<Local>,
    pub(super) health: Option<SocketAddr>,
    pub(super) access_log: Target,
    /// The number of workers.
    pub(super) workers: usize,
    pub(super) budgets: Budgets,
    pub(super) limits: Limits,
    /// Where tenants may have requests sent, besides usual addresses.
    pub(super) reach: AddressSet,
    /// The same for OCSP responders.
    pub(super) places: AddressSet,
    pub(super) grace: Duration,
    pub(super) deadline: Duration,
}

impl Plan {
    /// Checks the arguments, and creates the folders that they name.
    ///
    /// # Errors
    /// They are inconsistent, or a folder cannot be used.
    pub(super) fn of(args: Args) -> anyhow::Result<Self> {
        let Args {
            control_plane,
            insecure,
            join,
            token_file,
            ca,
            http,
            https,
            stream_address,
            public_http_port,
            public_https_port,
            admin,
            health,
            access_log,
            state_dir,
            key_dir,
            spill_dir,
            spill_bytes,
            memory,
            workers,
            node,
            zone,
            group,
            max_connections,
            request_timeout,
            auth_networks,
            ocsp_networks,
            eject_after,
            retry_budget,
            drain_grace,
            drain_deadline,
            log: _,
        } = args;
        if http.is_empty() && https.is_empty() {
            bail!("nothing to serve on: expected --http ADDR, --https ADDR or both");
        }
        let pairs = http.iter().flat_map(|plain| https.iter().map(move |secure| (plain, secure)));
        if let Some((plain, secure)) =
            pairs.into_iter().find(|(plain, secure)| socket::overlap(**plain, **secure))
        {
            bail!("--https: {secure} is taken by --http {plain}; choose another port for one of them");
        }
        let identity = identity::of_process(node, zone, group);
        let proof = identity::proof(join, token_file.zip(ca));
        let enrolment = identity::enrolment(&identity, proof, state_dir.as_deref(), key_dir.as_deref());
        let reach = networks(&auth_networks).context("--auth-networks")?;
        let places = networks(&ocsp_networks).context("--ocsp-networks")?;
        let (subscription, view) =
            Subscription::new(&control_plane, insecure, identity, enrolment).context("--control-plane")?;
        let bodies = bodies(spill_dir, state_dir.as_deref())?;
        let budgets = Budgets::of_memory(memory.unwrap_or_else(budget::memory))
            .with_spill(bodies, usize::try_from(spill_bytes).unwrap_or(usize::MAX))
            .with_connections(max_connections.get(), descriptors());
        Ok(Self {
            subscription,
            view,
            state_dir,
            key_dir,
            http,
            https,
            stream_address,
            ports: PublicPorts { http: public_http_port, https: public_https_port },
            admin,
            health,
            access_log,
            // The standard library reads the cgroup limits, and rounds them down.
            workers: workers.or_else(|| available_parallelism().ok()).map_or(1, |count| count.get()),
            budgets,
            limits: Limits { request: request_timeout, eject_after, retry_budget, ..Limits::default() },
            reach,
            places,
            grace: drain_grace,
            deadline: drain_deadline,
        })
    }
}

fn networks(said: &[String]) -> Result<AddressSet, shared::address::AddressError> {
    AddressSet::parse(said.iter().map(String::as_str))
}

/// The folder for bodies that memory has no room for.
fn bodies(spill_dir: Option<PathBuf>, state_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = spill_dir {
        prepare(&dir).with_context(|| format!("--spill-dir {}", dir.display()))?;
        return Ok(dir);
    }
    let beside = state_dir.filter(|dir| prepare(dir).is_ok());
    Ok(beside.map_or_else(std::env::temp_dir, Path::to_path_buf))
}

/// Creates the folder. Its contents are not read or written yet.
fn prepare(dir: &Path) -> io::Result<()> {
    shared::private::folder(dir)
}

/// Raises the limit of open files as far as possible. Returns the number that connections may use.
fn descriptors() -> usize {
    let limit = rlimit::increase_nofile_limit(rlimit::INFINITY).unwrap_or(1024);
    let fit = limit.saturating_sub(DESCRIPTORS).max(4);
    if fit < 8192 {
        warn!(limit, connections = fit, "the limit of open files is low; raise it (ulimit -n)");
    }
    usize::try_from(fit).unwrap_or(usize::MAX)
}
