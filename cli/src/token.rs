//! `firth token`: creates a join token.

use std::time::Duration;

use control_plane::Folder;
use serde_json::json;
use shared::clock;
use shared::identity::Role;

use crate::args::{Format, TokenArgs};
use crate::output;

/// Creates a token and prints it.
///
/// # Errors
/// If there is no authority in the folder, or the folder is not writable.
pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<()> {
    let life = Duration::from_secs(args.minutes * 60);
    // Validated by the command line.
    let role = Role::parse(&args.role).unwrap_or(Role::Proxy);
    let token = Folder::at(&args.ca_dir).token(role, &args.group, life, clock::wall())?.text();
    output::print(&match args.output {
        Format::Text => format!("{}\n", *token),
        Format::Json => {
            let told = json!({"token": *token, "role": args.role, "group": args.group});
            serde_json::to_string_pretty(&told)? + "\n"
        }
    })?;
    Ok(())
}
