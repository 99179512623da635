//! `boxwood ps`: the processes and commands of a session.

use boxwood_api::{ExecInfo, ExecState, ProcessInfo, ProcessStatus, Reason, SessionId};
use boxwood_client::Client;

use crate::failure::Outcome;
use crate::flags::command_line;
use crate::output::table::{Cell, Table, Tone};
use crate::output::{Output, ago, reason, yes_no};
use crate::verbs::sessions;

const EXAMPLES: &str = "\
Examples:
  boxwood ps                    List sessions, like `boxwood ls`
  boxwood ps tools              List managed processes and running commands of the session `tools`
  boxwood ps --execs tools      List its commands, including recently finished ones";

/// List the processes and commands of a session
///
/// Without a session, lists the sessions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    session: Option<SessionId>,

    /// List only commands, including recently finished ones
    #[arg(long, requires = "session")]
    execs: bool,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    if let Some(session) = &args.session {
        if args.execs {
            let execs = client.execs(session).await?;
            return output.table_or(&execs, || table(&[], &execs));
        }
        let processes = client.processes(session).await?;
        if output.is_json() {
            return Output::json(&processes);
        }
        let mut execs = client.execs(session).await?;
        execs.retain(|exec| exec.state == ExecState::Running);
        output.table(&table(&processes, &execs))
    } else {
        let mut sessions = client.sessions().await?;
        sessions.sort_by_key(|session| session.created_at);
        output.table_or(&sessions, || sessions::table(&sessions))
    }
}

fn table(processes: &[ProcessInfo], execs: &[ExecInfo]) -> Table {
    let mut table = Table::new(&["PROCESS", "STATUS", "ATTACHED", "STARTED", "COMMAND"]);
    for process in processes {
        table.row([
            process.process_id.as_str().into(),
            status(process),
            yes_no(process.attached).into(),
            ago(process.started_at).into(),
            command(process).into(),
        ]);
    }
    for exec in execs {
        table.row([
            exec_name(exec).into(),
            exec_status(exec),
            yes_no(exec.attached).into(),
            ago(exec.started_at).into(),
            exec.command.as_str().into(),
        ]);
    }
    table
}

/// In the column for names of managed processes.
pub(in crate::verbs) fn exec_name(exec: &ExecInfo) -> String {
    format!("exec {}", exec.exec_id)
}

pub(crate) fn exec_status(exec: &ExecInfo) -> Cell {
    match &exec.exit {
        None => Cell::toned("running", Tone::Good),
        Some(exit) => ended(exit.exit_code, exit.reason.as_ref()),
    }
}

pub(crate) fn command(process: &ProcessInfo) -> String {
    let mut argv = vec![process.command.clone()];
    argv.extend(process.args.iter().cloned());
    command_line(&argv)
}

pub(crate) fn status(process: &ProcessInfo) -> Cell {
    match process.status {
        ProcessStatus::Running => Cell::toned("running", Tone::Good),
        ProcessStatus::Exited => ended(process.exit_code, process.reason.as_ref()),
    }
}

fn ended(exit_code: Option<i32>, reason: Option<&Reason>) -> Cell {
    let code = exit_code.map_or_else(|| "?".to_owned(), |code| code.to_string());
    let text = match reason {
        Some(reason) => format!("exited {code} ({})", reason::short(reason)),
        None => format!("exited {code}"),
    };
    let tone = if exit_code == Some(0) {
        Tone::Plain
    } else {
        Tone::Bad
    };
    Cell::toned(text, tone)
}
