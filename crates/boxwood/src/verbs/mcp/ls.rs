//! `boxwood mcp ls`.

use boxwood_api::{McpServerInfo, McpStatus};
use boxwood_client::Client;

use super::{refused, tone};
use crate::failure::Outcome;
use crate::flags::command_line;
use crate::output::Output;
use crate::printable::{ellipsized, printable};
use crate::table::{Cell, Table};
use crate::verbs::{ago, wire_word};

const EXAMPLES: &str = "\
Examples:
  boxwood mcp ls
  boxwood mcp ls -q                     Names only, one per line
  boxwood mcp ls -o json | jq '.[] | select(.runtime.status == \"error\") | .name'";

/// What is more is seen with `status`.
const MAX_COLUMNS: usize = 60;

/// List servers, and how they are
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = EXAMPLES)]
pub(super) struct Args {
    /// Names only, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let servers = client.mcp_servers().await.map_err(refused)?;
    if args.quiet && !output.is_json() {
        for server in &servers {
            Output::line(&printable(server.name.as_str()))?;
        }
    } else {
        output.table_or(&servers, || table(&servers))?;
    }
    Ok(0)
}

fn table(servers: &[McpServerInfo]) -> Table {
    let mut table = Table::new(&["NAME", "STATUS", "TOOLS", "CHANGED", "COMMAND", "NOTE"]);
    for server in servers {
        let runtime = &server.runtime;
        let mut line = vec![server.command.clone()];
        line.extend(server.args.iter().cloned());
        table.row([
            server.name.as_str().into(),
            Cell::toned(wire_word(&runtime.status), tone(runtime.status)),
            tools(server).into(),
            ago(server.updated_at).into(),
            ellipsized(&command_line(&line), MAX_COLUMNS).into(),
            ellipsized(&note(server), MAX_COLUMNS).into(),
        ]);
    }
    table
}

fn tools(server: &McpServerInfo) -> String {
    match server.runtime.status {
        McpStatus::Connected => server.runtime.tool_count.to_string(),
        _ => "-".to_owned(),
    }
}

/// Where it is on its way, or where it failed.
fn note(server: &McpServerInfo) -> String {
    let runtime = &server.runtime;
    match runtime.status {
        McpStatus::Error => {
            let phase = runtime.error_phase.map(|phase| format!("{phase}: "));
            let message = runtime.error_message.as_deref().unwrap_or_default();
            let message = message.lines().next().unwrap_or_default();
            format!("{}{message}", phase.unwrap_or_default())
        }
        McpStatus::Connecting => {
            let step = runtime.steps.last().map(|step| step.phase.to_string());
            step.unwrap_or_default()
        }
        McpStatus::Queued => "waits for its turn".to_owned(),
        McpStatus::Disabled | McpStatus::Connected | McpStatus::Stopped => String::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in super::super) fn server(runtime: Value) -> McpServerInfo {
        let mut whole = json!({
            "status": "connected", "error_message": null, "error_phase": null, "retry_count": 0,
            "tool_count": 2, "tools": [],
        });
        if let (Some(whole), Value::Object(changes)) = (whole.as_object_mut(), runtime) {
            whole.extend(changes);
        }
        serde_json::from_value(json!({
            "name": "time", "command": "uvx", "args": ["mcp-server-time", "a b"], "env_keys": ["TOKEN"],
            "enabled": true, "box": {}, "tools": {}, "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z", "path": "/mcp/time", "runtime": whole,
        }))
        .expect("a server")
    }

    #[test]
    fn the_note_says_where_it_stands() {
        assert_eq!(note(&server(json!({}))), "");
        let failed = json!({
            "status": "error", "error_phase": "dep_install", "error_message": "no such package\nmore",
        });
        assert_eq!(note(&server(failed)), "dep_install: no such package");
        let on_its_way = json!({"status": "connecting", "steps": [
            {"phase": "session_create", "started_at": "2026-01-01T00:00:00Z"},
            {"phase": "mcp_init", "started_at": "2026-01-01T00:00:00Z"},
        ]});
        assert_eq!(note(&server(on_its_way)), "mcp_init");
    }
}
