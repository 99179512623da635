//! `boxwood ls`: the sessions.

use boxwood_api::{IsolationLabel, Mechanism, SessionInfo};
use boxwood_client::Client;

use super::{ago, wire_word};
use crate::failure::Outcome;
use crate::output::Output;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood ls                    A table, newest last
  boxwood ls -q                 Names only, one per line
  boxwood ls -o json            Everything";

/// List sessions
///
/// Shows every session the daemon holds, with its limits and how long it has been idle. Idle
/// sessions are removed after the daemon's session TTL.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names only, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut sessions = client.sessions().await?;
    sessions.sort_by_key(|session| session.created_at);
    if args.quiet && !output.is_json() {
        for session in &sessions {
            Output::line(&crate::printable::printable(session.session_id.as_str()))?;
        }
        return Ok(());
    }
    output.table_or(&sessions, || table(&sessions))
}

pub(crate) fn table(sessions: &[SessionInfo]) -> Table {
    let mut table = Table::new(&[
        "SESSION",
        "PROFILE",
        "IMAGE",
        "NETWORK",
        "CPUS",
        "MEMORY",
        "PIDS",
        "ISOLATION",
        "CREATED",
        "USED",
    ]);
    for session in sessions {
        table.row([
            session.session_id.as_str().into(),
            session.profile.as_str().into(),
            session.image.as_str().into(),
            wire_word(&session.network).into(),
            session.cpus.to_string().into(),
            format!("{}M", session.memory_mb).into(),
            session.pids_limit.to_string().into(),
            isolation(&session.isolation),
            ago(session.created_at).into(),
            ago(session.last_used_at).into(),
        ]);
    }
    table
}

/// `native`, or what is missing of it. Another kernel is a bonus that no plain host has, so its
/// absence is not worth a warning.
fn isolation(label: &IsolationLabel) -> Cell {
    let missing: Vec<_> = label
        .missing
        .iter()
        .filter(|missing| missing.mechanism != Mechanism::KernelBoundary)
        .map(|missing| wire_word(&missing.mechanism))
        .collect();
    if missing.is_empty() {
        label.backend.as_str().into()
    } else {
        let text = format!("{}, no {}", label.backend, missing.join(", "));
        Cell::toned(text, Tone::Warning)
    }
}
