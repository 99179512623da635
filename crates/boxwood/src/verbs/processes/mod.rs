//! Verbs for managed processes. Here: `start`, `stop` and `kill`.

pub(crate) mod attach;
pub(crate) mod logs;
pub(crate) mod ps;

use boxwood_api::{
    DEFAULT_MOUNT_PATH, ErrorCode, ProcessId, ProcessSpec, ProcessStatus, SessionId, Signal,
    SpecRequest,
};
use boxwood_client::Client;

use super::deletions::Deletions;
use crate::failure::{Failure, Outcome};
use crate::flags::{Assignment, BoxFlags, assignments};
use crate::output::Output;

const START_EXAMPLES: &str = "\
Examples:
  boxwood start tools --id fs -- npx -y @modelcontextprotocol/server-filesystem /workspace
  boxwood attach tools fs           Connect to its stdin and stdout
  boxwood logs tools fs             Show its output
  boxwood stop tools fs             Stop it";

/// Start a managed process in a session
///
/// A managed process continues to run after this command ends, such as a server that communicates over
/// its stdin and stdout. A session can have several, each with its own id. Creates the session if it does
/// not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = START_EXAMPLES)]
pub(crate) struct Start {
    /// Name of the session
    session: SessionId,

    /// Name of the process within its session
    #[arg(long, value_name = "ID", default_value = "default")]
    id: ProcessId,

    /// Set an environment variable; repeatable. `-e KEY` passes the value of your own environment
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    env: Vec<Assignment>,

    /// Working directory
    #[arg(short = 'w', long, value_name = "DIR", default_value = DEFAULT_MOUNT_PATH)]
    workdir: String,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    argv: Vec<String>,

    #[command(flatten)]
    box_flags: BoxFlags,
}

pub(crate) async fn start(args: &Start, client: &Client, output: Output) -> Outcome<()> {
    let Some((command, arguments)) = args.argv.split_first() else {
        return Err(Failure::usage("the program is missing"));
    };
    let spec = ProcessSpec {
        process_id: args.id.clone(),
        command: command.clone(),
        args: arguments.to_vec(),
        env: assignments(&args.env),
        cwd: args.workdir.clone(),
    };
    let mut request = SpecRequest::default();
    args.box_flags.fill(&mut request);
    // Without checking first, because the session could be removed after the check.
    let process = match client.start_process(&args.session, &spec).await {
        Err(error) if error.code() == ErrorCode::SessionNotFound => {
            client.create_session(&args.session, &request).await?;
            client.start_process(&args.session, &spec).await?
        }
        outcome => outcome?,
    };
    output.name_or(&process, process.process_id.as_str())
}

const STOP_EXAMPLES: &str = "\
Examples:
  boxwood stop tools web        Stop one process
  boxwood stop tools            Stop all running processes of the session";

/// Stop managed processes
///
/// Closes stdin of the process, sends TERM to it and its children, and after a few seconds KILL to those
/// that still run. The session and its files are kept; `boxwood rm` removes them.
#[derive(Debug, clap::Args)]
#[command(after_help = STOP_EXAMPLES)]
pub(crate) struct Stop {
    /// Name of the session
    session: SessionId,

    /// Name of the process [default: all running ones]
    process: Option<ProcessId>,
}

pub(crate) async fn stop(args: &Stop, client: &Client, output: Output) -> Outcome<()> {
    let processes: Vec<ProcessId> = match &args.process {
        Some(process) => vec![process.clone()],
        None => client
            .processes(&args.session)
            .await?
            .into_iter()
            .filter(|process| process.status == ProcessStatus::Running)
            .map(|process| process.process_id)
            .collect(),
    };
    let mut stopped = Deletions::new(output);
    for process in &processes {
        match client.stop_process(&args.session, process).await {
            Ok(()) => stopped.deleted(process.as_str())?,
            Err(error) => stopped.failed(error.into()),
        }
    }
    stopped.finish("stopped")
}

const KILL_EXAMPLES: &str = "\
Examples:
  boxwood kill tools web                        Send KILL
  boxwood kill -s HUP tools web                 Send HUP, which makes many programs reload
  boxwood kill --exec 1718 build                Kill a command; `boxwood ps build` shows its number";

/// Send a signal to a managed process, or kill a command
///
/// To let a managed process end properly, use `boxwood stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = KILL_EXAMPLES)]
pub(crate) struct Kill {
    /// Name or number of the signal
    #[arg(short, long, default_value = "KILL", value_parser = signal)]
    signal: Signal,

    /// Name of the session
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default")]
    process: ProcessId,

    /// Kill the command with this number, and its children
    #[arg(long, value_name = "ID", conflicts_with_all = ["process", "signal"])]
    exec: Option<u64>,
}

fn signal(text: &str) -> Result<Signal, String> {
    Signal::parse(text).ok_or_else(|| format!("there is no signal `{text}`"))
}

pub(crate) async fn kill(args: &Kill, client: &Client, output: Output) -> Outcome<()> {
    let (session, process) = (&args.session, &args.process);
    if let Some(exec_id) = args.exec {
        client.kill_exec(session, exec_id).await?;
        if output.is_json() {
            Output::json(&client.exec_detail(session, exec_id).await?)?;
        }
        return Ok(());
    }
    client.signal_process(session, process, args.signal).await?;
    if output.is_json() {
        Output::json(&client.process(session, process).await?)?;
    }
    Ok(())
}
