//! `boxwood run`: one command in a box of its own, without a daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{SessionId, SpecRequest};
use boxwood_policy::{Admission, Origin, PolicyRules, ProfileConfig, admit};
use boxwood_server::{Config, Flags, config};
use boxwood_session::{Backends, Resume, Sessions, Settings, ShutdownBoxes, Stdio};
use boxwood_skills::SkillStore;

use super::print_notices;
use crate::backend;
use crate::failure::{Failure, Outcome};
use crate::flags::{BoxFlags, CommandFlags, command_line};
use crate::interactive::{self, Connect};
use crate::live::{Control, Events};
use crate::output::Output;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  boxwood run -- python3 -c 'print(6 * 7)'
  boxwood run --workspace . -- make test            This directory as /workspace
  boxwood run -v ~/data:/data:ro -- ls /data
  boxwood run --network -- pip install requests
  boxwood run --timeout 30s --memory 512m --pids 64 -- ./untrusted
  boxwood run -it -- bash
  boxwood run -o json -- id                         The result as one JSON object

The words after -- are the program and its arguments; no shell looks at them. Ctrl-C goes to the
command, as does TERM; a third one kills it. Without --timeout the command may run as long as it
likes, unless the profile says otherwise.

Exit codes: the command's own, 128+n when signal n ended it; 124 timeout; 125 Boxwood failed.";

/// Run a command in a new box, without a daemon
///
/// Makes a box, runs the command in it, shows its output as it is written, and removes the box with
/// everything private in it. You are the operator here: directories you name may be mounted, except
/// those that hold the system's or Boxwood's own secrets.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Pass our stdin to the command
    #[arg(short, long)]
    interactive: bool,

    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,

    /// Remove the box at the end; always so, accepted by habit
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
    words: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    the_box: BoxFlags,
}

/// The profile of a person at the keyboard, who ends what takes too long.
const PROFILE: &str = "run";
const YEAR_SEC: u64 = 366 * 24 * 3600;

pub(crate) fn main(args: &Args, output: Output) -> Outcome<u8> {
    if output.is_json() && args.tty {
        return Err(Failure::usage("`-t` and `-o json` do not go together"));
    }
    let how = Connect::from_flags(args.interactive, args.tty)?;
    let config = config::load(&Flags {
        config: args.config.clone(),
        backend: args.the_box.backend.clone(),
        ..Flags::default()
    })?;
    let rules = rules(&config)?;
    let store = boxwood_server::skill_store(&config);
    let backends = backend::launch(&config, boxwood_server::PoolUse::OnDemand)?;
    let runtime = crate::runtime::for_boxes()?;
    let ended = runtime.block_on(box_and_all(args, backends, &rules, &store, how, output));
    // A stuck write to our stdout must not keep us here.
    runtime.shutdown_background();
    ended
}

/// The operator's own rules, with a default profile that has no hurry.
fn rules(config: &Config) -> Outcome<PolicyRules> {
    let mut config = config.clone();
    let policy = &mut config.policy;
    policy
        .profiles
        .entry(PROFILE.to_owned())
        .or_insert_with(|| ProfileConfig {
            extends: Some(
                policy
                    .default_profile
                    .clone()
                    .unwrap_or_else(|| "default".to_owned()),
            ),
            timeout_sec: Some(YEAR_SEC),
            max_timeout_sec: Some(YEAR_SEC),
            ..ProfileConfig::default()
        });
    policy.default_profile = Some(PROFILE.to_owned());
    Ok(boxwood_server::rules(&config)?)
}

/// However the command ends, the box is gone afterwards.
async fn box_and_all(
    args: &Args,
    backends: Backends,
    rules: &PolicyRules,
    store: &SkillStore,
    how: Connect,
    output: Output,
) -> Outcome<u8> {
    let admission = judge(args, rules, store, how, output).await?;
    print_notices(admission.exec.notices());
    let sessions = Sessions::new(
        backends,
        Settings {
            session_ttl: Duration::ZERO,
            ..Settings::default()
        },
    );
    let ended = if output.is_json() {
        captured(&sessions, admission).await
    } else {
        talk(&sessions, admission, args.words.clone(), how).await
    };
    sessions.shutdown(ShutdownBoxes::Stop).await;
    ended
}

/// The same door as for every other caller; only the origin differs.
async fn judge(
    args: &Args,
    rules: &PolicyRules,
    store: &SkillStore,
    how: Connect,
    output: Output,
) -> Outcome<Admission> {
    let mut request = SpecRequest {
        session_id: Some(session_name()?),
        ..SpecRequest::default()
    };
    args.the_box.fill(&mut request);
    args.command.fill(&mut request);
    if output.is_json() {
        request.cmd = command_line(&args.words);
        if args.interactive {
            request.stdin = Some(super::exec::read_stdin()?);
        }
    }
    if how == Connect::Terminal {
        super::pass_term(&mut request);
    }
    let facts = boxwood_server::gather_facts(&request, store).await;
    Ok(admit(&request, Origin::Operator, &facts, rules)?)
}

async fn talk(
    sessions: &Sessions,
    admission: Admission,
    argv: Vec<String>,
    how: Connect,
) -> Outcome<u8> {
    let stdio = match how {
        Connect::Output => Stdio::Output,
        Connect::Input => Stdio::Pipes,
        Connect::Terminal => Stdio::Terminal(terminal::size().into()),
    };
    let starting = sessions.stream_argv(admission, argv, stdio, Resume::Never);
    let exec = Arc::new(starting.await?);
    interactive::attach(Control::Local(Arc::clone(&exec)), Events::Local(exec), how).await
}

async fn captured(sessions: &Sessions, admission: Admission) -> Outcome<u8> {
    let result = sessions.exec(admission).await?;
    Output::json(&result)?;
    Ok(interactive::exit_code(result.status, result.exit_code))
}

/// Unlike any other, for the process list and the log.
fn session_name() -> Outcome<SessionId> {
    let mut nonce = [0; 4];
    getrandom::fill(&mut nonce).map_err(|error| {
        Failure::local(
            "no random numbers are to be had",
            std::io::Error::other(error.to_string()),
        )
    })?;
    SessionId::new(&format!("run-{:08x}", u32::from_le_bytes(nonce)))
        .map_err(crate::failure::internal)
}
