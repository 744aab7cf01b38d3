//! `firth up DIR`: both planes in one process, from a folder of manifests, with no cluster.
//!
//! The planes run as they do in a cluster, over a real stream on loopback, each on a thread and runtime of its own;
//! this module only starts them, prints what they do, and stops them in order.
//!
//! **Invariant:** neither plane depends on anything here; without it they behave the same.

mod authority;
mod backends;
mod demo;
pub(crate) mod environment;
mod flags;
mod news;
mod patience;
mod plane;
mod ports;
mod served;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use data_plane::local::KnownNames;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use shared::drain::Signals;
use shared::identity::Role;
use shared::telemetry::{self, LogArgs};
use shared::tls::join::JoinToken;
use tempfile::TempDir;

use self::authority::{Authority, GROUP};
use self::backends::Backends;
use self::news::News;
use self::patience::Patience;
use self::plane::Plane;
use self::ports::Ports;
use self::served::Served;
use crate::args::UpArgs;
use crate::client::{self, Inspect};
use crate::identity::Somebody;
use crate::{lists, output, snippets};

/// Timeout until the proxy serves. A folder of 10,000 Services takes a few seconds.
const START: Duration = Duration::from_secs(60);
/// Interval of checks during the start.
const LOOK: Duration = Duration::from_millis(20);

/// Serves until a signal is received.
///
/// # Errors
/// If something cannot start, or a plane ends unexpectedly.
pub(crate) fn run(args: UpArgs) -> anyhow::Result<()> {
    telemetry::init(&LogArgs { log: args.log.clone(), log_format: args.log_format })?;
    // As in each plane's own program: private keys are in memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // One worker: the planes have threads of their own, this runtime runs the demo backends and the output.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(up(args));
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

async fn up(args: UpArgs) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    if !args.dir.is_dir() {
        bail!("{}: expected a folder of manifests", args.dir.display());
    }
    let (ports, _held) = Ports::claim(&args)?;
    let state = State::new(args.state_dir.as_deref())?;
    let (mut backends, companion) = Backends::new(!args.no_demo)?;

    let server = format!("https://{}", ports.listen);
    let authority = Authority::of(&args)?;
    let flags = control_flags(&args, &ports, authority.path())?;
    let controller = (!flags.ignore_ingress_classes).then(|| flags.controller_class.clone());
    let configmap = flags.configmap.clone();
    let run = move |stop| control_plane::app::run_beside(flags, companion, stop);
    let mut control = Plane::start("control plane", run)?;
    let me = tokio::select! {
        me = tokio::time::timeout(START, authority.operator(&server)) => me.context("the control plane has not issued a certificate in time")??,
        ended = control.ended() => return Err(ended),
        () = signals.next() => return control.stop().await,
    };
    let identity = authority.keep(&me, &server, args.listen.port() == 0);
    let identity = identity.with_context(|| format!("cannot write {}", authority.path().display()))?;
    for message in [&authority.message, &identity.message].into_iter().flatten() {
        output::print(&format!("{}\n", output::printable(message)))?;
    }
    let token = authority.token(Role::Proxy);
    let token = token.with_context(|| format!("cannot write {}", authority.path().display()))?;
    let mut data = start_data(&args, &ports, state.path(), &token, backends.names())?;
    let dir = output::printable(&args.dir.display().to_string());
    let starting = async {
        if let Some(missing) = backends.first().await {
            let why = match missing.unread {
                Some(unread) => output::printable(&unread),
                None => "waiting for one in a *.yaml, *.yml or *.json file".to_owned(),
            };
            output::print(&format!("{dir} has no Ingress yet: {why}\n"))?;
            if missing.is_bare {
                let wait = control_plane::SECOND_LOOK.as_secs();
                output::print(&format!(
                    "it may not be mounted yet: it is read again in {wait} s, and nothing is served until then\n"
                ))?;
            }
        }
        tokio::time::timeout(START, started(&server, &me, &mut backends)).await.map_err(anyhow::Error::from)
    };
    let started = tokio::select! {
        started = starting => started,
        ended = control.ended() => return Err(ended),
        ended = data.ended() => return Err(ended),
        () = signals.next() => return stop(data, control).await,
    };
    let mut inspect = match started {
        Ok(inspect) => inspect?,
        Err(_) => bail!("the proxy is not ready after {} s; use --log info to see why", START.as_secs()),
    };

    // Listen first, so that no change between the summary and the news is missed.
    let failed = |status| client::failed(&server, &status);
    let mut news = News::listen(inspect.clone()).await.map_err(failed)?;
    let nothing = nothing(&dir, &args.classes.ingress_class, controller.as_deref(), &backends);
    let served = Served::ask(&mut inspect, nothing).await.map_err(failed)?;
    output::print(&served.render(&args.dir, &ports, &output::program(), &identity))?;
    output::print(&backends.render())?;
    let unread = backends.unread();
    for line in &unread {
        output::print(&format!("{}\n", output::printable(line)))?;
    }
    if !unread.is_empty() {
        output::print("\n")?;
    }
    let problems = lists::problems(&mut inspect).await.map_err(failed)?;
    if let Some(line) = snippets::line(&problems, &configmap) {
        output::print(&format!("{}\n\n", output::printable(&line)))?;
    }
    output::print(&format!("edit a file in {dir} and watch it arrive; Ctrl-C stops\n\n"))?;
    loop {
        let line = tokio::select! {
            line = news.next() => line.map_err(failed)?,
            line = backends.next() => line,
            ended = control.ended() => return Err(ended),
            ended = data.ended() => return Err(ended),
            () = signals.next() => break,
        };
        output::print(&format!("{}\n", output::printable(&line)))?;
    }
    // The control plane waits for open calls.
    drop((news, inspect));
    output::print("stopping\n")?;
    tokio::select! {
        stopped = stop(data, control) => stopped,
        () = signals.next() => bail!("stopped at once on a second signal"),
    }
}

/// Why no Ingress is served, where there is none. `controller`: that of the classes that are served, unless classes are ignored.
fn nothing(dir: &str, class: &str, controller: Option<&str>, backends: &Backends) -> String {
    let Some(controller) = controller else {
        return format!("{dir} has no Ingress with the annotation kubernetes.io/ingress.class: {class}");
    };
    let others = backends.classes().of_others(controller);
    if others.is_empty() {
        return format!(
            "{dir} has no Ingress of class {class}, or of another one of controller {controller}"
        );
    }
    let reasons =
        others.iter().map(|other| format!("IngressClass {}: {}", other.class, other.reason(controller)));
    output::printable(&reasons.collect::<Vec<_>>().join("; "))
}

/// The proxy first: while it drains, endpoints still change.
async fn stop(data: Plane, control: Plane) -> anyhow::Result<()> {
    data.stop().await?;
    control.stop().await
}

/// The command line of the control plane, with the environment.
fn control_flags(
    args: &UpArgs,
    ports: &Ports,
    authority: &Path,
) -> anyhow::Result<control_plane::args::Args> {
    let mut words =
        vec!["firth-control-plane".into(), "--manifests".into(), args.dir.clone().into_os_string()];
    words.extend(["--listen".into(), ports.listen.to_string().into()]);
    // Whoever runs this is the operator as long as it runs, and a person's certificate is not renewed automatically.
    words.extend(["--ca-dir".into(), authority.into(), "--certificate-life".into(), "365d".into()]);
    words.extend(["--group".into(), GROUP.into(), "--insecure=false".into()]);
    // There is one proxy, and it starts together with the control plane.
    words.extend(["--settle".into(), "0s".into()]);
    words.extend(args.classes.words());
    if let Some(dir) = &args.state_dir {
        words.extend(["--state-dir".into(), dir.join("control-plane").into_os_string()]);
    }
    environment::control(words)
}

fn start_data(
    args: &UpArgs,
    ports: &Ports,
    state: &Path,
    token: &JoinToken,
    names: KnownNames,
) -> anyhow::Result<Plane> {
    let mut words = vec!["firth-data-plane".into(), "--join".into(), token.text().as_str().into()];
    for (flag, value) in [
        ("--control-plane", format!("https://{}", ports.listen)),
        ("--group", GROUP.to_owned()),
        ("--insecure", "false".to_owned()),
        ("--http", ports.http.to_string()),
        ("--https", ports.https.to_string()),
        ("--stream-address", ports.http.ip().to_string()),
        ("--access-log", args.access_log.clone()),
        ("--auth-networks", args.auth_networks.join(",")),
    ] {
        words.extend([flag.into(), value.into()]);
    }
    for (flag, value) in [
        // There is no port mapping in front of it.
        ("--public-http-port", ports.http.port().to_string()),
        ("--public-https-port", ports.https.port().to_string()),
        // There is no load balancer to wait for, and a user waits at the terminal.
        ("--drain-grace", "0".to_owned()),
        ("--drain-deadline", "5".to_owned()),
    ] {
        if !environment::is_said(flag) {
            words.extend([flag.into(), value.into()]);
        }
    }
    words.extend(["--state-dir".into(), state.join("data-plane").into_os_string()]);
    let args = environment::data(words)?;
    Plane::start("data plane", move |stop| data_plane::app::run_knowing(args, names, stop))
}

/// Resolves when a proxy is connected and serves the newest version. Meanwhile the backends are served.
async fn started(server: &str, me: &Somebody, backends: &mut Backends) -> anyhow::Result<Inspect> {
    tokio::select! {
        inspect = connected(server, me) => inspect,
        never = async {
            loop {
                backends.work().await;
            }
        } => never,
    }
}

async fn connected(server: &str, me: &Somebody) -> anyhow::Result<Inspect> {
    let endpoint = client::endpoint(server)?;
    let mut patience = Patience::new("the control plane");
    loop {
        match client::connect(server, endpoint.clone(), Some(me.connector()?)).await {
            Ok(channel) => {
                let mut inspect = client::inspect(channel);
                // Before the first lists are complete the control plane may reject queries: retry.
                while let Ok(lists::Proxies { proxies, .. }) = lists::proxies(&mut inspect).await {
                    if proxies.iter().any(|proxy| proxy.in_sync) {
                        return Ok(inspect);
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
            Err(error) => patience.hear(&error),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The state folder of the planes: the given one, or a temporary one.
enum State {
    Named(std::path::PathBuf),
    Passing(TempDir),
}

impl State {
    fn new(named: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match named {
            Some(dir) => Self::Named(dir.to_owned()),
            None => Self::Passing(
                tempfile::Builder::new()
                    .prefix("firth-up-")
                    .tempdir()
                    .context("cannot make a folder for the proxy's state")?,
            ),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Named(dir) => dir,
            Self::Passing(dir) => dir.path(),
        }
    }
}
