//! `firth-load hold`: connects, holds, edits where it is asked to, reports.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use integration_tests::load::edits::Outcome;
use integration_tests::load::usage::Usage;
use integration_tests::load::{Editor, Fleet, Plan, Way};
use serde_json::{Value, json};
use shared::tls::join::JoinToken;
use tokio::signal::ctrl_c;
use tokio::time;

use super::args::{Format, HoldArgs};
use super::progress;

/// What all proxies are called that show no certificate.
const NAME: &str = "firth-load";
/// An edit that is not everywhere after this is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a fleet was held.
struct Held {
    proxies: usize,
    /// From the start until all were in sync.
    all: Option<Duration>,
    outcome: Outcome,
    /// Edits that did not arrive everywhere.
    lost: usize,
    /// While it was held, all in sync.
    held: Duration,
    /// Bytes until all were in sync, and since: from the control plane, and to it.
    bytes: [(u64, u64); 2],
    /// Before the first connection, when all were in sync, at the end.
    usage: Option<[Usage; 3]>,
}

/// Holds a fleet.
///
/// # Errors
/// If it cannot be started.
pub(crate) async fn run(args: HoldArgs) -> anyhow::Result<ExitCode> {
    let plan = plan(&args).await?;
    let mut editor = args.edit.as_deref().map(|dir| Editor::open(dir, args.rate)).transpose()?;
    let usage = || args.pid.map(Usage::of).transpose().context("the process of --pid");
    let (before, begun) = (usage()?, Instant::now());
    let fleet = Fleet::start(&plan)?;
    let world = fleet.world();
    let ended = async {
        let synced = world.until(|board| board.in_sync == plan.proxies);
        let Ok(at) = time::timeout(args.patience, synced).await else { return Ok(None) };
        let (bytes, synced) = (fleet.bytes(), usage()?);
        let rest = async {
            match args.hold {
                Some(hold) => time::sleep(hold).await,
                None => std::future::pending().await,
            }
        };
        // What was held until then is reported all the same.
        let edited = match &mut editor {
            Some(editor) => editor.run(world, plan.proxies, rest).await.context("no further edit"),
            None => {
                rest.await;
                Ok(())
            }
        };
        anyhow::Ok(Some((at, bytes, synced, edited)))
    };
    let mut reached = None;
    let mut is_edited = true;
    tokio::select! {
        done = ended => if let Some((at, bytes, synced, edited)) = done? {
            reached = Some((at, bytes, synced));
            if let Err(error) = edited {
                eprintln!("error: {error:#}");
                is_edited = false;
            }
        },
        _ = progress::show(|| Some(Arc::clone(world)), plan.proxies) => {}
        _ = ctrl_c() => eprintln!("the proxies say goodbye"),
    }
    progress::over();
    let settled = world.until(|board| board.edits.is_idle());
    let _ = time::timeout(PATIENCE, settled).await;
    let (total, after) = (fleet.bytes(), usage()?);
    let (at, first, synced) = match reached {
        Some((at, bytes, usage)) => (Some(at), bytes, usage),
        None => (None, total, after),
    };
    let held = {
        let mut board = world.board();
        let outcome = board.edits.take();
        Held {
            proxies: plan.proxies,
            all: at.map(|at| at - begun),
            lost: outcome.lost + board.edits.open(),
            outcome,
            held: at.map_or(Duration::ZERO, |at| at.elapsed()),
            bytes: [first, (total.0 - first.0, total.1 - first.1)],
            usage: before.zip(synced).zip(after).map(|((before, synced), after)| [before, synced, after]),
        }
    };
    let report = report(&fleet, &held);
    let is_well =
        world.board().ends.is_empty() && held.lost == 0 && is_edited && world.board().in_sync == plan.proxies;
    tokio::select! {
        () = fleet.leave() => {}
        _ = ctrl_c() => {}
    }
    match args.output {
        Format::Json => println!("{report:#}"),
        Format::Text => print!("{}", text(&report)),
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn plan(args: &HoldArgs) -> anyhow::Result<Plan> {
    let mut control_planes = Vec::new();
    for url in &args.urls {
        let address = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(address), _) if args.insecure => address,
            (Some(_), _) => bail!("{url} is plaintext: say --insecure to allow it"),
            (_, Some(address)) if args.join.is_some() => address,
            (_, Some(_)) => bail!("{url} asks who calls: give --join what `firth token` prints"),
            _ => bail!("expected a URL such as https://192.0.2.1:15010, got {url:?}"),
        };
        let mut found = tokio::net::lookup_host(address.trim_end_matches('/')).await;
        let found = found.as_mut().ok().and_then(Iterator::next);
        control_planes.push(found.with_context(|| format!("{address} has no address"))?);
    }
    let way = match &args.join {
        Some(token) => certified(control_planes[0], token).await?,
        None => Way::Plain,
    };
    let (name, group) = (NAME.to_owned(), args.group.clone());
    Ok(Plan { proxies: args.proxies, control_planes, way, name, group, pace: args.pace })
}

async fn certified(address: SocketAddr, token: &JoinToken) -> anyhow::Result<Way> {
    let way = Way::by_token(address, &token.text(), NAME).await;
    way.map_err(|status| anyhow::anyhow!("no certificate: {status}"))
}

fn report(fleet: &Fleet, held: &Held) -> Value {
    let board = fleet.world().board();
    let proxies = held.proxies as f64;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let edits = held.outcome.last.count();
    let each = |bytes: u64| (edits > 0).then(|| bytes as f64 / proxies / edits as f64);
    let mut report = json!({
        "proxies": held.proxies,
        "connected": board.connected,
        "in_sync": board.in_sync,
        "all_in_sync_ms": held.all.map(millis),
        "held_ms": millis(held.held),
        "connect": board.connects.json(),
        "sync": board.syncs.json(),
        "outage": board.outages.json(),
        "starts": board.starts,
        "streams_lost": board.ends,
        "batches": board.batches,
        "changes": board.changes,
        "bytes": {
            "sync_received": held.bytes[0].0, "sync_sent": held.bytes[0].1,
            "held_received": held.bytes[1].0, "held_sent": held.bytes[1].1,
        },
        "edits": {
            "everywhere": edits,
            "lost": held.lost,
            "to_a_proxy": held.outcome.each.json(),
            "to_the_first": held.outcome.first.json(),
            "to_the_last": held.outcome.last.json(),
            "received_per_edit_and_proxy": each(held.bytes[1].0),
            "sent_per_edit_and_proxy": each(held.bytes[1].1),
        },
    });
    if let Some([before, synced, after]) = held.usage {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let spent = after.cpu.saturating_sub(synced.cpu);
        report["control_plane"] = json!({
            "memory": after.memory,
            "memory_peak": after.peak,
            "memory_per_proxy": (after.memory as f64 - before.memory as f64) / proxies,
            "cpu_to_sync_ms": millis(synced.cpu.saturating_sub(before.cpu)),
            "cpu_held_ms": millis(spent),
            "cpu_us_per_edit_and_proxy": (edits > 0).then(|| micros(spent) / proxies / edits as f64),
        });
    }
    report
}

/// The same as lines.
fn text(report: &Value) -> String {
    let mut lines = String::new();
    if let Value::Object(fields) = report {
        for (name, value) in fields {
            let value = match value {
                Value::Object(parts) if parts.is_empty() => "none".to_owned(),
                Value::Object(parts) => {
                    let parts: Vec<_> =
                        parts.iter().map(|(part, value)| format!("{part} {}", said(value))).collect();
                    parts.join("; ")
                }
                value => said(value),
            };
            lines += &format!("{:<16} {value}\n", name.replace('_', " "));
        }
    }
    lines.replace('_', " ")
}

fn said(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Value::Object(figures) if figures.contains_key("p50_ms") => {
            let part = |name: &str| said(&figures[name]);
            format!("p50 {} ms, p99 {} ms, most {} ms", part("p50_ms"), part("p99_ms"), part("max_ms"))
        }
        value => value.to_string(),
    }
}
