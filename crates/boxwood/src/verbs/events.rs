//! `boxwood events`: what happens, as it happens.

use boxwood_api::{Event, EventKind, SessionId};
use boxwood_client::Client;

use super::session_id;
use crate::failure::Outcome;
use crate::output::Output;
use crate::printable::printable;
use crate::reason;

const EXAMPLES: &str = "\
Examples:
  boxwood events
  boxwood events --session build
  boxwood events -o json | jq .event            One JSON object per line";

/// Watch what happens
///
/// Prints sessions coming and going, commands starting and finishing, and managed processes, until
/// you press Ctrl-C or the daemon goes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this session
    #[arg(long, value_name = "SESSION", value_parser = session_id)]
    session: Option<SessionId>,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut events = client.events().await?;
    while let Some(event) = events.next().await? {
        if args
            .session
            .as_ref()
            .is_some_and(|id| *id != event.session_id)
        {
            continue;
        }
        if output.is_json() {
            Output::json_line(&event)?;
        } else {
            Output::line(&printable(&words(&event)))?;
        }
    }
    Ok(())
}

fn words(event: &Event) -> String {
    let what = match &event.kind {
        EventKind::ImagePull(news) => format!("pulls `{}`: {}", news.image, news.text),
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
        } => format!(
            "exec {exec_id} {} after {duration_ms} ms",
            ending(*exit_code, reason.as_ref())
        ),
        EventKind::ProcessStarted { process_id } => format!("process `{process_id}` started"),
        EventKind::ProcessExited {
            process_id,
            exit_code,
            reason,
        } => format!(
            "process `{process_id}` {}",
            ending(*exit_code, reason.as_ref())
        ),
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
    format!(
        "{}  {}  {what}",
        event.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        event.session_id
    )
}

fn ending(exit_code: Option<i32>, reason: Option<&boxwood_api::Reason>) -> String {
    let code = exit_code.map_or_else(|| "ended".to_owned(), |code| format!("exited {code}"));
    match reason {
        Some(reason) => format!("{code} ({})", reason::short(reason)),
        None => code,
    }
}
