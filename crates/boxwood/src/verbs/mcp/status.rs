//! `boxwood mcp status`.

use boxwood_api::{McpServerInfo, McpServerName, McpStep};
use boxwood_client::Client;
use serde_json::Value;

use super::{refused, server_name, tone};
use crate::failure::Outcome;
use crate::flags::{command_line, duration_text};
use crate::output::Output;
use crate::table::{Cell, Table, Tone};
use crate::verbs::{ago, wire_word};

const EXAMPLES: &str = "\
Examples:
  boxwood mcp status time
  boxwood mcp status time -o json | jq .runtime.error_phase";

/// Show everything about a server
///
/// How it is, how long each phase of its last start took, and what it was asked to be. Ends with 0 also
/// when it has failed: that was the question.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of the server
    #[arg(value_parser = server_name)]
    name: McpServerName,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
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
        Cell::toned(wire_word(&runtime.status), tone(runtime.status)),
    ]);
    let mut maybe = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            table.fact(name, value);
        }
    };
    maybe("phase", runtime.error_phase.map(|phase| phase.to_string()));
    // The last words of an installer or a server are often several lines.
    let error = runtime.error_message.as_deref().unwrap_or_default();
    for (number, line) in error.lines().enumerate() {
        let name = if number == 0 { "error" } else { "" };
        maybe(name, Some(line.to_owned()));
    }
    maybe("hint", runtime.hint.clone());
    maybe(
        "retries",
        Some(runtime.retry_count)
            .filter(|&count| count > 0)
            .map(|count| count.to_string()),
    );
    maybe("tools", Some(runtime.tool_count.to_string()));
    maybe("server", runtime.server_info.as_ref().map(server_words));
    maybe("protocol", runtime.protocol_version.clone());
    maybe(
        "session",
        runtime.box_session_id.as_ref().map(ToString::to_string),
    );
    let mut line = vec![server.command.clone()];
    line.extend(server.args.iter().cloned());
    maybe("command", Some(command_line(&line)));
    let env_keys = server.env_keys.join(" ");
    maybe("variables", Some(env_keys).filter(|keys| !keys.is_empty()));
    maybe("directory", server.cwd.clone());
    maybe(
        "with",
        Some(server.with.join(" ")).filter(|with| !with.is_empty()),
    );
    maybe(
        "allowed tools",
        Some(server.tools.allow.join(" ")).filter(|it| !it.is_empty()),
    );
    maybe(
        "denied tools",
        Some(server.tools.deny.join(" ")).filter(|it| !it.is_empty()),
    );
    maybe(
        "idle stop",
        server.idle_stop_sec.map(|seconds| format!("{seconds} s")),
    );
    maybe("box", Some(box_words(server)));
    // What was asked for is above; these say what its boxes have instead.
    for notice in &runtime.notices {
        maybe("notice", Some(notice.clone()));
    }
    maybe("path", Some(server.path.clone()));
    maybe("added", Some(ago(server.created_at)));
    maybe("changed", Some(ago(server.updated_at)));
    table
}

fn server_words(info: &Value) -> String {
    let text = |field: &str| info[field].as_str().unwrap_or_default();
    format!("{} {}", text("name"), text("version"))
        .trim()
        .to_owned()
}

fn box_words(server: &McpServerInfo) -> String {
    let settings = &server.settings;
    let mut words = vec![format!("network {}", wire_word(&settings.network))];
    let mut maybe = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
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
    words.join(", ")
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ls::tests::server;
    use super::*;
    use crate::output::Colour;

    #[test]
    fn what_there_is_to_know_stands_in_one_table() {
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
    fn steps_say_how_long_they_took() {
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
