//! Verbs for the daemon itself. Here: `profiles`, `events` and `completion`.

pub(crate) mod doctor;
pub(crate) mod serve;
pub(crate) mod token;

use boxwood_api::{Event, EventKind, ProfileInfo, Reason, SessionId};
use boxwood_client::Client;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Outcome;
use crate::output::printable::printable;
use crate::output::table::Table;
use crate::output::{Output, reason, wire_word};

const PROFILES_EXAMPLES: &str = "\
Examples:
  boxwood profiles
  boxwood profiles -o json | jq '.[] | select(.name == \"default\")'";

/// List profiles
///
/// A profile contains defaults for boxes, fields that requests cannot change (LOCKED), and mechanisms
/// without which a box does not start (REQUIRES). More profiles can be defined in the daemon's
/// configuration file.
#[derive(Debug, clap::Args)]
#[command(after_help = PROFILES_EXAMPLES)]
pub(crate) struct Profiles {}

pub(crate) async fn profiles(client: &Client, output: Output) -> Outcome<()> {
    let profiles = client.profiles().await?;
    output.table_or(&profiles, || table(&profiles))
}

fn table(profiles: &[ProfileInfo]) -> Table {
    let mut table = Table::new(&[
        "PROFILE", "NETWORK", "CPUS", "MEMORY", "PIDS", "ROOT", "TIMEOUT", "LOCKED", "REQUIRES",
    ]);
    for profile in profiles {
        let (timeout, max) = (profile.timeout_sec, profile.max_timeout_sec);
        table.row([
            profile.name.as_str().into(),
            wire_word(&profile.network).into(),
            profile.cpus.to_string().into(),
            format!("{}M", profile.memory_mb).into(),
            profile.pids_limit.to_string().into(),
            root(profile.read_only_rootfs).into(),
            format!("{timeout}s, at most {max}s").into(),
            list(&profile.locked).into(),
            list(&profile.require).into(),
        ]);
    }
    table
}

pub(super) fn root(is_read_only: bool) -> &'static str {
    if is_read_only {
        "read-only"
    } else {
        "writable"
    }
}

fn list<T: serde::Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return "-".to_owned();
    }
    items.iter().map(wire_word).collect::<Vec<_>>().join(", ")
}

const EVENTS_EXAMPLES: &str = "\
Examples:
  boxwood events
  boxwood events --session build
  boxwood events -o json | jq .event            One JSON object per line";

/// Watch events of the daemon
///
/// Prints when sessions are created and removed, when commands start and finish, and changes of managed
/// processes and MCP servers, until you press Ctrl-C or the daemon stops.
#[derive(Debug, clap::Args)]
#[command(after_help = EVENTS_EXAMPLES)]
pub(crate) struct Events {
    /// Show only events of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
}

pub(crate) async fn events(args: &Events, client: &Client, output: Output) -> Outcome<()> {
    let mut events = client.events().await?;
    while let Some(event) = events.next().await? {
        let session = args.session.as_ref();
        if session.is_some_and(|id| *id != event.session_id) {
            continue;
        }
        if output.is_json() {
            Output::json_line(&event)?;
        } else {
            Output::line(&printable(&description(&event)))?;
        }
    }
    Ok(())
}

fn description(event: &Event) -> String {
    let text = match &event.kind {
        EventKind::ImagePull(pull) => format!("pulling `{}`: {}", pull.image, pull.text),
        EventKind::SessionCreated { .. } => "created".to_owned(),
        EventKind::SessionDeleted { why } => format!("removed: {why}"),
        EventKind::SessionFrozen => "frozen: idle".to_owned(),
        EventKind::SessionThawed { frozen_ms } => format!("thawed after {frozen_ms} ms"),
        EventKind::ExecStarted { exec_id } => format!("exec {exec_id} started"),
        EventKind::ExecFinished {
            exec_id,
            exit_code,
            reason,
            duration_ms,
        } => {
            let exit_text = exit_text(*exit_code, reason.as_ref());
            format!("exec {exec_id} {exit_text} after {duration_ms} ms")
        }
        EventKind::ProcessStarted { process_id } => format!("process `{process_id}` started"),
        EventKind::ProcessExited {
            process_id,
            exit_code,
            reason,
        } => {
            let exit_text = exit_text(*exit_code, reason.as_ref());
            format!("process `{process_id}` {exit_text}")
        }
        EventKind::McpConnected { name } => format!("MCP server `{name}` is connected"),
        EventKind::McpFailed {
            name,
            phase,
            message,
        } => match phase {
            Some(phase) => format!("MCP server `{name}` failed in phase {phase}: {message}"),
            None => format!("MCP server `{name}` failed: {message}"),
        },
    };
    let time = event.at.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!("{time}  {}  {text}", event.session_id)
}

fn exit_text(exit_code: Option<i32>, reason: Option<&Reason>) -> String {
    let code = exit_code.map_or_else(|| "ended".to_owned(), |code| format!("exited {code}"));
    match reason {
        Some(reason) => format!("{code} ({})", reason::short(reason)),
        None => code,
    }
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  boxwood completion bash > /etc/bash_completion.d/boxwood
  boxwood completion zsh > \"${fpath[1]}/_boxwood\"
  boxwood completion fish > ~/.config/fish/completions/boxwood.fish";

/// Print a completion script for a shell
///
/// Write the output to the directory where your shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn completion(args: &Completion) -> Outcome<()> {
    // Not written directly: the generator panics if stdout is closed early.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "boxwood", &mut script);
    Output::bytes(&script)
}
