//! `boxwood stop`: the end of managed processes.

use boxwood_api::{ProcessId, ProcessStatus, SessionId};
use boxwood_client::Client;
use serde::Serialize;

use super::{process_id, session_id};
use crate::failure::Outcome;
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood stop tools web        One process
  boxwood stop tools            Every running process of the session
  boxwood rm tools              The session itself";

/// Stop managed processes
///
/// Closes the process's stdin, sends TERM to it and all it has started, and KILL to what is left
/// after a few seconds. The session and its files stay; `boxwood rm` removes them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of the process; all of them when left out
    #[arg(value_parser = process_id)]
    process: Option<ProcessId>,
}

#[derive(Serialize)]
struct Stopped<'a> {
    stopped: Vec<&'a ProcessId>,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let processes = match &args.process {
        Some(process) => vec![process.clone()],
        None => client
            .processes(&args.session)
            .await?
            .into_iter()
            .filter(|process| process.status == ProcessStatus::Running)
            .map(|process| process.process_id)
            .collect(),
    };
    let mut stopped = Vec::new();
    for process in &processes {
        client.stop_process(&args.session, process).await?;
        if !output.is_json() {
            Output::line(&printable(process.as_str()))?;
        }
        stopped.push(process);
    }
    if output.is_json() {
        Output::json(&Stopped { stopped })?;
    }
    Ok(())
}
