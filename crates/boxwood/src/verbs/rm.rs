//! `boxwood rm`: removes sessions.

use boxwood_api::{ErrorCode, SessionId};
use boxwood_client::Client;

use super::deletions::Deletions;
use super::session_id;
use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood rm build
  boxwood rm -f build test          No error when they are gone already
  boxwood rm --all";

/// Remove sessions
///
/// Kills everything in the box and removes it with its private files. Mounted host directories stay.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names of the sessions
    #[arg(value_name = "SESSION", value_parser = session_id, required_unless_present = "all")]
    sessions: Vec<SessionId>,

    /// Every session of the daemon
    #[arg(short, long, conflicts_with = "sessions")]
    all: bool,

    /// A session that does not exist is not an error
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let sessions = if args.all {
        client
            .sessions()
            .await?
            .into_iter()
            .map(|session| session.session_id)
            .collect()
    } else {
        args.sessions.clone()
    };
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

fn is_gone(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::SessionNotFound | ErrorCode::SessionGone)
}
