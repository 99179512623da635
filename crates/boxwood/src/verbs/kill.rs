//! `boxwood kill`: a signal for a managed process, or the end of a command.

use boxwood_api::{ProcessId, SessionId, Signal};
use boxwood_client::Client;

use super::{process_id, session_id};
use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood kill tools web                        KILL
  boxwood kill -s HUP tools web                 Reload, for programs that do
  boxwood kill --exec 1718 build                A command, as `boxwood ps build` shows it";

/// Send a signal to a managed process, or kill a command
///
/// To end a managed process in good order use `boxwood stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Signal by name or number
    #[arg(short, long, default_value = "KILL", value_parser = signal)]
    signal: Signal,

    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default", value_parser = process_id)]
    process: ProcessId,

    /// Kill the command of this number, with everything it started
    #[arg(long, value_name = "ID", conflicts_with_all = ["process", "signal"])]
    exec: Option<u64>,
}

fn signal(text: &str) -> Result<Signal, String> {
    Signal::parse(text).ok_or_else(|| format!("there is no signal `{text}`"))
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    if let Some(exec_id) = args.exec {
        client.kill_exec(&args.session, exec_id).await?;
        if output.is_json() {
            Output::json(&client.exec_detail(&args.session, exec_id).await?)?;
        }
        return Ok(());
    }
    client
        .signal_process(&args.session, &args.process, args.signal)
        .await?;
    if output.is_json() {
        Output::json(&client.process(&args.session, &args.process).await?)?;
    }
    Ok(())
}
