//! `boxwood mcp ls`, `status` and `logs`.

use std::collections::BTreeMap;

use boxwood_api::{McpLogs, McpServerInfo, McpServerName, McpStatus, McpStep};
use boxwood_client::Client;
use serde_json::Value;

use super::refused;
use crate::failure::Outcome;
use crate::flags::{command_line, duration_text};
use crate::output::printable::{ellipsized, printable_line};
use crate::output::table::{Cell, Table, Tone};
use crate::output::{Output, ago, wire_word};
use crate::verbs::processes::logs::{POLL_INTERVAL, appended};

const LS_EXAMPLES: &str = "\
Examples:
  boxwood mcp ls
  boxwood mcp ls -q                     Only names
  boxwood mcp ls -o json | jq '.[] | select(.runtime.status == \"error\") | .name'";

/// Longer commands and notes are shortened.
const MAX_COLUMNS: usize = 60;

/// List servers and their status
#[derive(Debug, clap::Args)]
#[command(visible_alias = "list", after_help = LS_EXAMPLES)]
pub(super) struct Ls {
    /// Print only names, one per line
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn ls(args: &Ls, client: &Client, output: Output) -> Outcome<u8> {
    let servers = client.mcp_servers().await.map_err(refused)?;
    if args.quiet && !output.is_json() {
        Output::names(servers.iter().map(|server| server.name.as_str()))?;
    } else {
        output.table_or(&servers, || servers_table(&servers))?;
    }
    Ok(0)
}

fn servers_table(servers: &[McpServerInfo]) -> Table {
    let mut table = Table::new(&["NAME", "STATUS", "TOOLS", "CHANGED", "COMMAND", "NOTE"]);
    for server in servers {
        let runtime = &server.runtime;
        let is_connected = runtime.status == McpStatus::Connected;
        let tools = is_connected.then(|| runtime.tool_count.to_string());
        table.row([
            server.name.as_str().into(),
            status_cell(runtime.status),
            tools.as_deref().unwrap_or("-").into(),
            ago(server.updated_at).into(),
            ellipsized(&command(server), MAX_COLUMNS).into(),
            ellipsized(&note(server), MAX_COLUMNS).into(),
        ]);
    }
    table
}

fn status_cell(status: McpStatus) -> Cell {
    let tone = match status {
        McpStatus::Connected => Tone::Good,
        McpStatus::Queued | McpStatus::Connecting => Tone::Warning,
        McpStatus::Error => Tone::Bad,
        McpStatus::Disabled | McpStatus::Stopped => Tone::Faint,
    };
    Cell::toned(wire_word(&status), tone)
}

/// The current phase, or the error.
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
        McpStatus::Queued => "waits in the queue".to_owned(),
        McpStatus::Disabled | McpStatus::Connected | McpStatus::Stopped => String::new(),
    }
}

const STATUS_EXAMPLES: &str = "\
Examples:
  boxwood mcp status time
  boxwood mcp status time -o json | jq .runtime.error_phase";

/// Show all details of a server
///
/// Shows its status, the duration of each phase of its last start, and its settings. Exits with 0 also if the
/// server has failed.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(super) struct Status {
    /// Name of the server
    name: McpServerName,
}

pub(super) async fn status(args: &Status, client: &Client, output: Output) -> Outcome<u8> {
    let server = client.mcp_server(&args.name).await.map_err(refused)?;
    if output.is_json() {
        Output::json(&server)?;
    } else {
        output.table(&facts(&server))?;
        if !server.runtime.steps.is_empty() {
            Output::line("")?;
            output.table(&steps(&server.runtime.steps))?;
        }
    }
    Ok(0)
}

fn facts(server: &McpServerInfo) -> Table {
    let mut table = Table::of_facts();
    table.fact("name", server.name.as_str());
    let runtime = &server.runtime;
    table.row([
        Cell::toned("status", Tone::Faint),
        status_cell(runtime.status),
    ]);
    table.maybe_fact("phase", runtime.error_phase.map(|phase| phase.to_string()));
    // The output of an installer or a server often has several lines.
    let error = runtime.error_message.as_deref().unwrap_or_default();
    for (number, line) in error.lines().enumerate() {
        table.fact(if number == 0 { "error" } else { "" }, line);
    }
    table.maybe_fact("hint", runtime.hint.as_deref());
    let retries = (runtime.retry_count > 0).then(|| runtime.retry_count.to_string());
    table.maybe_fact("retries", retries);
    table.fact("tools", runtime.tool_count.to_string());
    table.maybe_fact("server", runtime.server_info.as_ref().map(server_version));
    table.maybe_fact("protocol", runtime.protocol_version.as_deref());
    let session = runtime.box_session_id.as_ref();
    table.maybe_fact("session", session.map(ToString::to_string));
    table.fact("command", command(server));
    table.maybe_fact("variables", Some(server.env_keys.join(" ")));
    table.maybe_fact("directory", server.cwd.as_deref());
    table.maybe_fact("with", Some(server.with.join(" ")));
    table.maybe_fact("allowed tools", Some(server.tools.allow.join(" ")));
    table.maybe_fact("denied tools", Some(server.tools.deny.join(" ")));
    let idle_stop = server.idle_stop_sec.map(|seconds| format!("{seconds} s"));
    table.maybe_fact("idle stop", idle_stop);
    table.fact("box", box_settings(server));
    // Where the box differs from the settings.
    for notice in &runtime.notices {
        table.fact("notice", notice);
    }
    table.fact("path", &server.path);
    table.fact("added", ago(server.created_at));
    table.fact("changed", ago(server.updated_at));
    table
}

fn command(server: &McpServerInfo) -> String {
    let mut argv = vec![server.command.clone()];
    argv.extend(server.args.iter().cloned());
    command_line(&argv)
}

fn server_version(info: &Value) -> String {
    let text = |field: &str| info[field].as_str().unwrap_or_default();
    format!("{} {}", text("name"), text("version"))
        .trim()
        .to_owned()
}

fn box_settings(server: &McpServerInfo) -> String {
    let settings = &server.settings;
    let mut parts = vec![format!("network {}", wire_word(&settings.network))];
    let mut maybe = |name: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{name} {value}")));
    };
    maybe("profile", settings.profile.clone());
    maybe("backend", settings.backend.clone());
    maybe("image", settings.image.clone());
    let path = settings.host_path.as_ref();
    maybe(
        "on",
        path.map(|path| format!("{path} ({})", wire_word(&settings.host_path_mode))),
    );
    maybe(
        "memory",
        settings.memory_mb.map(|size| format!("{size} MiB")),
    );
    maybe("cpus", settings.cpus.map(|cpus| cpus.to_string()));
    maybe("pids", settings.pids_limit.map(|pids| pids.to_string()));
    parts.join(", ")
}

fn steps(steps: &[McpStep]) -> Table {
    let mut table = Table::new(&["PHASE", "TOOK", "DETAIL"]);
    for step in steps {
        let took = match step.ended_at {
            None => "…".to_owned(),
            Some(end) => {
                let took = end.duration_since(step.started_at);
                duration_text(took.try_into().unwrap_or_default())
            }
        };
        table.row([
            step.phase.as_str().into(),
            took.into(),
            step.detail.as_deref().unwrap_or_default().into(),
        ]);
    }
    table
}

const LOGS_EXAMPLES: &str = "\
Examples:
  boxwood mcp logs time                 Output of its installation and its stderr
  boxwood mcp logs -f time              Follow it
  boxwood mcp logs time --protocol      List its messages
  boxwood mcp logs time -o json         {\"stderr\": …, \"install\": …, \"protocol\": […]}";

/// Show the recent output of a server
///
/// Messages are listed by method, id and length; their content is not stored.
#[derive(Debug, clap::Args)]
#[command(after_help = LOGS_EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Logs {
    /// Name of the server
    name: McpServerName,

    /// Continue with new output until interrupted
    #[arg(short, long)]
    follow: bool,

    /// Show only its stderr
    #[arg(long, conflicts_with_all = ["protocol", "install"])]
    stderr: bool,

    /// Show only its messages: `>` to the server, `<` from it
    #[arg(long, conflicts_with = "install")]
    protocol: bool,

    /// Show only the output of its installation
    #[arg(long)]
    install: bool,
}

pub(super) async fn logs(args: &Logs, client: &Client, output: Output) -> Outcome<u8> {
    if output.is_json() && !args.follow {
        let logs = client.mcp_logs(&args.name).await.map_err(refused)?;
        Output::json(&logs)?;
        return Ok(0);
    }
    let mut shown = [String::new(), String::new()];
    loop {
        let logs = if args.follow {
            client.with_retries(|| client.mcp_logs(&args.name)).await
        } else {
            client.mcp_logs(&args.name).await
        };
        let parts = parts(args, &logs.map_err(refused)?);
        for (previous, (kind, current)) in shown.iter().zip(&parts) {
            let appended = appended(previous, current);
            if !output.is_json() {
                print(appended)?;
            } else if !appended.is_empty() {
                Output::json_line(&BTreeMap::from([(kind, appended)]))?;
            }
        }
        if !args.follow {
            return Ok(0);
        }
        shown = parts.map(|(_, text)| text);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The selected logs, oldest first.
fn parts(args: &Logs, logs: &McpLogs) -> [(&'static str, String); 2] {
    let install = ("install", logs.install.clone());
    let stderr = ("stderr", logs.stderr.clone());
    let nothing = ("", String::new());
    if args.protocol {
        let mut lines = logs.protocol.join("\n");
        if !lines.is_empty() {
            lines.push('\n');
        }
        [("protocol", lines), nothing]
    } else if args.stderr {
        [stderr, nothing]
    } else if args.install {
        [install, nothing]
    } else {
        [install, stderr]
    }
}

fn print(text: &str) -> Outcome<()> {
    let mut safe = String::new();
    for line in text.split_inclusive('\n') {
        let content = line.strip_suffix('\n').unwrap_or(line);
        safe.push_str(&printable_line(content.trim_end_matches('\r')));
        if line.len() > content.len() {
            safe.push('\n');
        }
    }
    Output::bytes(safe.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Colour;

    fn server(runtime: Value) -> McpServerInfo {
        let mut status = json!({
            "status": "connected", "error_message": null, "error_phase": null, "retry_count": 0,
            "tool_count": 2, "tools": [],
        });
        if let (Some(status), Value::Object(changes)) = (status.as_object_mut(), runtime) {
            status.extend(changes);
        }
        serde_json::from_value(json!({
            "name": "time", "command": "uvx", "args": ["mcp-server-time", "a b"], "env_keys": ["TOKEN"],
            "enabled": true, "box": {}, "tools": {}, "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z", "path": "/mcp/time", "runtime": status,
        }))
        .expect("a server")
    }

    #[test]
    fn the_note_shows_the_phase_or_the_error() {
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

    #[test]
    fn all_details_of_a_server_are_in_one_table() {
        let server = server(json!({
            "status": "error", "error_phase": "mcp_init", "error_message": "it did not answer\nand ended",
            "hint": "look at its log", "retry_count": 3, "tool_count": 0,
            "notices": ["network is locked to off by profile `tight`; on was asked for"],
        }));
        let text = facts(&server).render(Colour::Never);
        for line in [
            "status      error",
            "phase       mcp_init",
            "error       it did not answer\n            and ended\n",
            "hint        look at its log",
            "command     uvx mcp-server-time 'a b'",
            "variables   TOKEN",
            "box         network on\nnotice      network is locked to off by profile `tight`",
        ] {
            assert!(text.contains(line), "`{line}` in\n{text}");
        }
    }

    #[test]
    fn steps_are_shown_with_their_duration() {
        let step = |phase: &str, end: Option<&str>| {
            serde_json::from_value::<McpStep>(json!({
                "phase": phase, "started_at": "2026-01-01T00:00:00Z", "ended_at": end, "detail": "x",
            }))
            .expect("a step")
        };
        let list = [
            step("dep_install", Some("2026-01-01T00:00:12Z")),
            step("mcp_init", None),
        ];
        let text = steps(&list).render(Colour::Never);
        assert!(text.contains("dep_install   12s    x"), "{text}");
        assert!(text.contains("mcp_init      …      x"), "{text}");
    }
}
