//! `firth login`: gets a certificate for a person, authorised by the cluster or by access to the authority's folder.

use std::time::Duration;

use control_plane::{Access, Folder, GrantError, Granted, KubeError, grant};
use serde_json::json;
use shared::clock;
use shared::identity::Role;
use shared::name::ObjectName;
use shared::proto::identity::enrol_request::Proof;
use shared::tls::Trust;

use crate::args::{Format, LoginArgs};
use crate::identity::{self, Somebody};
use crate::{client, output};

/// Lifetime of a token that is used at once.
const TOKEN: Duration = Duration::from_secs(60);

/// Gets a certificate, writes it and reports that.
///
/// # Errors
/// If no certificate is issued, or it cannot be written.
pub(crate) fn run(args: &LoginArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    client::endpoint(&args.server)?;
    let folder = identity::folder(args.identity.as_deref(), &args.server)?;
    // Before any request: a join token can be used only once.
    identity::no_file(&folder)?;
    let somebody = runtime.block_on(async {
        let (trust, proof) = proof(args).await?;
        anyhow::Ok(Somebody::enrol(&args.server, &trust, &args.group, proof).await?)
    })?;
    let who = somebody.identity()?;
    // Before anything is replaced.
    anyhow::ensure!(
        matches!(who.role, Role::Reader | Role::Operator),
        "the service account {}/{} stands for a {}, who can ask nothing: expected that of a reader or operator (--account)",
        args.namespace,
        args.account,
        who.role
    );
    somebody.write_for_login(&folder)?;
    let left =
        somebody.until().and_then(|until| until.duration_since(clock::wall()).ok()).unwrap_or_default();
    let shown = output::printable(&folder.display().to_string());
    output::print(&match args.output {
        Format::Text => {
            let address = args.server.split_once("://").map_or(args.server.as_str(), |(_, address)| address);
            let grpcurl = identity::grpcurl(&folder, address);
            format!(
                "{} {}, for {}, in {shown}\n  {} list\n",
                who.role,
                who.name,
                lasts(left),
                output::printable(&grpcurl)
            )
        }
        Format::Json => {
            let told = json!({"role": who.role.as_str(), "name": &*who.name, "group": &*who.group, "folder": shown, "hours": hours(left), "seconds": left.as_secs()});
            serde_json::to_string_pretty(&told)? + "\n"
        }
    })?;
    Ok(())
}

/// Hours begun: a certificate of a day has lost a moment by now.
fn hours(left: Duration) -> u64 {
    left.as_secs().div_ceil(3600)
}

/// A lifetime for people: in hours, if it has more than one; else in minutes or seconds.
fn lasts(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", hours(left)),
    }
}

async fn proof(args: &LoginArgs) -> anyhow::Result<(Trust, Proof)> {
    if let Some(dir) = &args.ca_dir {
        // Validated by the command line.
        let role = Role::parse(&args.role).unwrap_or(Role::Reader);
        let token = Folder::at(dir).token(role, &args.group, TOKEN, clock::wall())?;
        return Ok((Trust::Pinned(token.pin), Proof::JoinToken(token.text().to_string())));
    }
    let named = |name: &str| ObjectName::new(args.namespace.as_str(), name);
    let access = Access { kubeconfig: args.kubeconfig.as_deref(), context: args.context.as_deref() };
    let granted = grant(access, named(&args.account), named(&args.ca_secret)).await;
    let Granted { token, roots } = granted.map_err(advised)?;
    Ok((Trust::Roots(roots), Proof::AccountToken(token)))
}

/// Without any cluster, the control plane is most likely outside of one.
fn advised(error: GrantError) -> anyhow::Error {
    let is_nowhere = matches!(error, GrantError::Cluster(KubeError::Unconfigured(_)));
    let error = anyhow::Error::new(error);
    if is_nowhere {
        error.context("for a control plane outside of a cluster give --ca-dir, the folder of its authority")
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_not_longer_than_it_is() {
        let said = |seconds| lasts(Duration::from_secs(seconds));
        assert_eq!([0, 59, 119].map(said), ["0 s", "59 s", "119 s"]);
        assert_eq!([121, 3_590].map(said), ["3 min", "60 min"]);
        assert_eq!([3_600, 86_399].map(said), ["1 h", "24 h"]);
    }
}
