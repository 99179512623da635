//! `boxwood run`: one command in a new box, without a daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{SessionId, SpecRequest};
use boxwood_policy::{Admission, Origin, PolicyRules, ProfileConfig, admit};
use boxwood_server::{Config, Flags, PoolUse, config};
use boxwood_session::{Resume, Sessions, Settings, ShutdownBoxes, Stdio};

use super::exec::{fill_captured, pass_term};
use crate::failure::{Failure, Outcome};
use crate::flags::{BoxFlags, CommandFlags};
use crate::interactive::live::{Control, Events, local_size};
use crate::interactive::{self, Connect, terminal};
use crate::output::{Output, print_notices};
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  boxwood run -- python3 -c 'print(6 * 7)'
  boxwood run --workspace . -- make test            Mount this directory as /workspace
  boxwood run -v ~/data:/data:ro -- ls /data
  boxwood run --network -- pip install requests
  boxwood run --timeout 30s --memory 512m --pids 64 -- ./untrusted
  boxwood run -it -- bash
  boxwood run -o json -- id                         Print the result as one JSON object

The words after -- are the program and its arguments; they are not interpreted by a shell. Ctrl-C
and TERM are sent to the command; the third signal kills it. Without --timeout there is no time
limit, unless the profile has one.

Exit codes: the command's own, 128+n if signal n ended it; 124 timeout; 125 Boxwood failed.";

/// Run a command in a new box, without a daemon
///
/// Creates a box, runs the command in it, shows its output as it is written, and removes the box with
/// its private files. Any host directory can be mounted, except those that contain secrets of the system
/// or of Boxwood.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Pass stdin to the command
    #[arg(short, long)]
    interactive: bool,

    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,

    /// Accepted for compatibility with Docker; the box is always removed
    #[arg(long)]
    rm: bool,

    /// Configuration file
    #[arg(
        long,
        value_name = "FILE",
        env = "BOXWOOD_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    argv: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    box_flags: BoxFlags,
}

/// The default profile, without its time limit: the user ends a command that takes too long.
const PROFILE: &str = "run";
const YEAR_SEC: u64 = 366 * 24 * 3600;

pub(crate) fn main(args: &Args, output: Output) -> Outcome<u8> {
    let mut request = SpecRequest {
        session_id: Some(session_name()?),
        ..SpecRequest::default()
    };
    args.box_flags.fill(&mut request);
    args.command.fill(&mut request);
    let connect = Connect::from_flags(args.interactive, args.tty)?;
    if output.is_json() {
        fill_captured(&mut request, &args.argv, args.interactive, args.tty)?;
    }
    pass_term(&mut request, connect);
    let config = config::load(&Flags {
        config: args.config.clone(),
        backend: args.box_flags.backend.clone(),
        ..Flags::default()
    })?;
    let rules = rules(&config)?;
    let store = boxwood_server::skill_store(&config);
    let (backends, runtime) = runtime::for_boxes(&config, PoolUse::OnDemand)?;
    let ended = runtime.block_on(async {
        let facts = boxwood_server::gather_facts(&request, &store).await;
        let admission = admit(&request, Origin::Operator, &facts, &rules)?;
        print_notices(admission.exec.notices());
        let settings = Settings {
            session_ttl: Duration::ZERO,
            ..Settings::default()
        };
        let sessions = Sessions::new(backends, settings);
        let ended = run(&sessions, admission, args, connect, output).await;
        sessions.shutdown(ShutdownBoxes::Stop).await;
        ended
    });
    // Does not wait for a blocked write to stdout.
    runtime.shutdown_background();
    ended
}

/// The operator's rules, with the profile `run` as the default.
fn rules(config: &Config) -> Outcome<PolicyRules> {
    let mut config = config.clone();
    let policy = &mut config.policy;
    let default = policy.default_profile.replace(PROFILE.to_owned());
    let profile = ProfileConfig {
        extends: Some(default.unwrap_or_else(|| "default".to_owned())),
        timeout_sec: Some(YEAR_SEC),
        max_timeout_sec: Some(YEAR_SEC),
        ..ProfileConfig::default()
    };
    policy.profiles.entry(PROFILE.to_owned()).or_insert(profile);
    Ok(boxwood_server::rules(&config)?)
}

async fn run(
    sessions: &Sessions,
    admission: Admission,
    args: &Args,
    connect: Connect,
    output: Output,
) -> Outcome<u8> {
    if output.is_json() {
        let result = sessions.exec(admission).await?;
        Output::json(&result)?;
        return Ok(interactive::exit_code(result.status, result.exit_code));
    }
    let stdio = match connect {
        Connect::Output => Stdio::Output,
        Connect::Input => Stdio::Pipes,
        Connect::Terminal => Stdio::Terminal(local_size(terminal::size())),
    };
    let starting = sessions.stream_argv(admission, args.argv.clone(), stdio, Resume::Never);
    let exec = Arc::new(starting.await?);
    interactive::attach(
        Control::Local(Arc::clone(&exec)),
        Events::Local(exec),
        connect,
    )
    .await
}

/// A random name, for the process list and the log.
fn session_name() -> Outcome<SessionId> {
    let mut nonce = [0; 4];
    getrandom::fill(&mut nonce).map_err(|error| {
        let error = std::io::Error::other(error.to_string());
        Failure::local("cannot read random numbers", error)
    })?;
    SessionId::new(&format!("run-{:08x}", u32::from_le_bytes(nonce))).map_err(Failure::internal)
}
