//! `boxwood rm`: the end of sessions.

use boxwood_api::{ErrorCode, SessionId};
use boxwood_client::Client;
use serde::Serialize;

use super::session_id;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

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

#[derive(Serialize)]
struct Deleted<'a> {
    deleted: &'a [SessionId],
}

/// Goes through all of them and fails at the end with the first error: one wrong name must not keep
/// the others alive.
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
    let mut deleted = Vec::new();
    let mut failure: Option<Failure> = None;
    for session in sessions {
        match client.delete_session(&session).await {
            Ok(_) => {
                if !output.is_json() {
                    Output::line(&printable(session.as_str()))?;
                }
                deleted.push(session);
            }
            Err(error) if is_gone(error.code()) && (args.force || args.all) => {}
            Err(error) => {
                failure.get_or_insert(error.into());
            }
        }
    }
    if output.is_json() {
        Output::json(&Deleted { deleted: &deleted })?;
    }
    failure.map_or(Ok(()), Err)
}

fn is_gone(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::SessionNotFound | ErrorCode::SessionGone)
}
