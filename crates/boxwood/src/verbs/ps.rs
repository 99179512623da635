//! `boxwood ps`: managed processes of a session, or the sessions.

use boxwood_api::{ProcessInfo, ProcessStatus, SessionId};
use boxwood_client::Client;

use super::{ago, session_id};
use crate::failure::Outcome;
use crate::flags::command_line;
use crate::output::Output;
use crate::reason;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood ps                    The sessions, like `boxwood ls`
  boxwood ps tools              The managed processes of the session `tools`";

/// List the managed processes of a session
///
/// Without a session it lists the sessions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: Option<SessionId>,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    if let Some(session) = &args.session {
        let processes = client.processes(session).await?;
        output.table_or(&processes, || table(&processes))
    } else {
        let mut sessions = client.sessions().await?;
        sessions.sort_by_key(|session| session.created_at);
        output.table_or(&sessions, || super::ls::table(&sessions))
    }
}

pub(crate) fn table(processes: &[ProcessInfo]) -> Table {
    let mut table = Table::new(&["PROCESS", "STATUS", "ATTACHED", "STARTED", "COMMAND"]);
    for process in processes {
        table.row([
            process.process_id.as_str().into(),
            status(process),
            if process.attached { "yes" } else { "no" }.into(),
            ago(process.started_at).into(),
            command(process).into(),
        ]);
    }
    table
}

pub(crate) fn command(process: &ProcessInfo) -> String {
    let mut words = vec![process.command.clone()];
    words.extend(process.args.iter().cloned());
    command_line(&words)
}

pub(crate) fn status(process: &ProcessInfo) -> Cell {
    match process.status {
        ProcessStatus::Running => Cell::toned("running", Tone::Good),
        ProcessStatus::Exited => {
            let code = process
                .exit_code
                .map_or_else(|| "?".to_owned(), |code| code.to_string());
            let text = match &process.reason {
                Some(reason) => format!("exited {code} ({})", reason::short(reason)),
                None => format!("exited {code}"),
            };
            let tone = if process.exit_code == Some(0) {
                Tone::Plain
            } else {
                Tone::Bad
            };
            Cell::toned(text, tone)
        }
    }
}
