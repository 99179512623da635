//! `boxwood start`: a managed process.

use boxwood_api::{DEFAULT_MOUNT_PATH, ErrorCode, ProcessId, ProcessSpec, SessionId, SpecRequest};
use boxwood_client::Client;

use super::{process_id, session_id};
use crate::failure::{Failure, Outcome};
use crate::flags::{BoxFlags, EnvVar};
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood start tools --id fs -- npx -y @modelcontextprotocol/server-filesystem /workspace
  boxwood attach tools fs           Speak to it, line by line
  boxwood logs tools fs             What it wrote
  boxwood stop tools fs             End it";

/// Start a managed process in a session
///
/// A managed process lives on after this command ends: a server that speaks over its stdin and
/// stdout, for example. A session can have many, each under its own id. Creates the session when it
/// does not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of the process within its session
    #[arg(long, value_name = "ID", default_value = "default", value_parser = process_id)]
    id: ProcessId,

    /// Set an environment variable; repeatable. `-e KEY` takes the value from here
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    env: Vec<EnvVar>,

    /// Directory to start in
    #[arg(short = 'w', long, value_name = "DIR", default_value = DEFAULT_MOUNT_PATH)]
    workdir: String,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    words: Vec<String>,

    #[command(flatten)]
    the_box: BoxFlags,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let Some((command, rest)) = args.words.split_first() else {
        return Err(Failure::usage("there is no program to start"));
    };
    let spec = ProcessSpec {
        process_id: args.id.clone(),
        command: command.clone(),
        args: rest.to_vec(),
        env: args
            .env
            .iter()
            .map(|variable| (variable.key.clone(), variable.value.clone()))
            .collect(),
        cwd: args.workdir.clone(),
    };
    let mut request = SpecRequest::default();
    args.the_box.fill(&mut request);
    // Asking first would leave a gap in which the session could go; trying and creating does not.
    let process = match client.start_process(&args.session, &spec).await {
        Err(error) if error.code() == ErrorCode::SessionNotFound => {
            client.create_session(&args.session, &request).await?;
            client.start_process(&args.session, &spec).await?
        }
        Ok(process) => process,
        Err(error) => return Err(error.into()),
    };
    output.name_or(&process, process.process_id.as_str())
}
