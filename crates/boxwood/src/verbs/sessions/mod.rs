//! Verbs for sessions. Here: `create`, `ls` and `rm`.

pub(crate) mod cp;
pub(crate) mod exec;
pub(crate) mod inspect;
pub(crate) mod run;

use boxwood_api::{ErrorCode, IsolationLabel, Mechanism, SessionId, SessionInfo, SpecRequest};
use boxwood_client::Client;

use super::deletions::Deletions;
use crate::failure::Outcome;
use crate::flags::BoxFlags;
use crate::output::table::{Cell, Table, Tone};
use crate::output::{Output, ago, wire_word};

const CREATE_EXAMPLES: &str = "\
Examples:
  boxwood create build --memory 2g --network
  boxwood create review --workspace ~/src/project:ro --profile offline_readonly";

/// Create a session
///
/// Prints the name of the session when its box is running. An existing session with the same
/// configuration is kept; one that differs is an error, which names the field.
#[derive(Debug, clap::Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub(crate) struct Create {
    /// Name of the session
    session: SessionId,

    /// Keep the session when it is idle
    #[arg(long)]
    persistent: bool,

    #[command(flatten)]
    box_flags: BoxFlags,
}

pub(crate) async fn create(args: &Create, client: &Client, output: Output) -> Outcome<()> {
    let mut request = SpecRequest::default();
    args.box_flags.fill(&mut request);
    if args.persistent {
        request.persistent = Some(true);
    }
    let session = client.create_session(&args.session, &request).await?;
    output.name_or(&session, session.session_id.as_str())
}

const LS_EXAMPLES: &str = "\
Examples:
  boxwood ls                    A table, newest last
  boxwood ls -q                 Only names
  boxwood ls -o json            All details";

/// List sessions
///
/// Shows every session of the daemon, with its limits and when it was last used. Idle sessions are
/// removed after the daemon's session TTL.
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = LS_EXAMPLES)]
pub(crate) struct Ls {
    /// Print only names, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn ls(args: &Ls, client: &Client, output: Output) -> Outcome<()> {
    let mut sessions = client.sessions().await?;
    sessions.sort_by_key(|session| session.created_at);
    if args.quiet && !output.is_json() {
        return Output::names(sessions.iter().map(|session| session.session_id.as_str()));
    }
    output.table_or(&sessions, || table(&sessions))
}

pub(super) fn table(sessions: &[SessionInfo]) -> Table {
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

/// The backend, and the mechanisms that are missing. A separate kernel is not available on ordinary hosts, so its
/// absence is no warning.
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

const RM_EXAMPLES: &str = "\
Examples:
  boxwood rm build
  boxwood rm -f build test          Ignore sessions that do not exist
  boxwood rm --all";

/// Remove sessions
///
/// Kills all processes in the box and removes it with its private files. Mounted host directories are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = RM_EXAMPLES)]
pub(crate) struct Rm {
    /// Names of the sessions
    #[arg(value_name = "SESSION", required_unless_present = "all")]
    sessions: Vec<SessionId>,

    /// Remove all sessions of the daemon
    #[arg(short, long, conflicts_with = "sessions")]
    all: bool,

    /// Ignore sessions that do not exist
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn rm(args: &Rm, client: &Client, output: Output) -> Outcome<()> {
    let mut sessions = args.sessions.clone();
    if args.all {
        let all = client.sessions().await?.into_iter();
        sessions.extend(all.map(|session| session.session_id));
    }
    let is_gone = |code| matches!(code, ErrorCode::SessionNotFound | ErrorCode::SessionGone);
    let mut deletions = Deletions::new(output);
    for session in sessions {
        match client.delete_session(&session).await {
            Ok(_) => deletions.deleted(session)?,
            Err(error) if is_gone(error.code()) && (args.force || args.all) => {}
            Err(error) => deletions.failed(error.into()),
        }
    }
    deletions.finish("deleted")
}
