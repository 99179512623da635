//! Progress of servers that start: one line per phase on stderr, with a status line below them on a terminal, and the
//! final status of each server on stdout.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use boxwood_api::{
    ErrorCode, McpPhase, McpProgress, McpRuntimeInfo, McpServerInfo, McpServerName, McpStatus,
};
use boxwood_client::{Client, ClientError, McpProgressStream};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{refused, tool_count};
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::flags::duration_text;
use crate::output::Output;
use crate::printable::printable;
use crate::status_line::StatusLine;
use crate::verbs::wire_word;

const TICK: Duration = Duration::from_millis(120);
/// Of an installer, to be shown when the start fails.
const KEPT_LINES: usize = 20;
/// Updates to be printed. A full queue stops the readers of the progress streams.
const QUEUE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Never,
    UntilSettled,
}

/// Shows how the servers come along, then how they are. 1 when one of them failed.
pub(super) async fn settle(
    client: &Client,
    servers: Vec<McpServerInfo>,
    waiting: Waiting,
    output: Output,
) -> Outcome<u8> {
    let servers = settled(client, servers, waiting, output).await?;
    if output.is_json() {
        match servers.as_slice() {
            [one] => Output::json(one)?,
            several => Output::json(&several)?,
        }
    } else {
        for server in &servers {
            Output::line(&outcome_line(server.name.as_str(), &server.runtime))?;
        }
    }
    Ok(exit_code(&servers))
}

pub(super) fn exit_code(servers: &[McpServerInfo]) -> u8 {
    let has_failed = |server: &McpServerInfo| server.runtime.status == McpStatus::Error;
    if servers.iter().any(has_failed) {
        EXIT_ERROR
    } else {
        0
    }
}

/// The servers as they are in the end.
pub(super) async fn settled(
    client: &Client,
    mut servers: Vec<McpServerInfo>,
    waiting: Waiting,
    output: Output,
) -> Outcome<Vec<McpServerInfo>> {
    if waiting == Waiting::UntilSettled {
        follow(client, &mut servers, output).await?;
    }
    Ok(servers)
}

async fn follow(client: &Client, servers: &mut [McpServerInfo], output: Output) -> Outcome<()> {
    let (sender, mut update) = mpsc::channel(QUEUE);
    for (at, server) in servers.iter().enumerate() {
        let (client, name, sender) = (client.clone(), server.name.clone(), sender.clone());
        tokio::spawn(async move {
            let ended = watch(&client, &name, at, &sender).await;
            if let Err(error) = ended {
                // Fails if another server's error has already ended the command.
                let _ = sender.send((at, Err(error))).await;
            }
        });
    }
    drop(sender);
    let mut display = ProgressDisplay::new(output);
    let mut tick = tokio::time::interval(TICK);
    let mut settled = 0;
    while settled < servers.len() {
        tokio::select! {
            update = update.recv() => {
                let Some((at, update)) = update else { break };
                let update = update.map_err(refused)?;
                let name = servers[at].name.to_string();
                display.update(&name, &update);
                if let McpProgress::Done { runtime } = update {
                    servers[at].runtime = *runtime;
                    settled += 1;
                }
            }
            _ = tick.tick() => display.draw(),
        }
    }
    Ok(())
}

type Update = (usize, Result<McpProgress, ClientError>);

/// Goes on after a restart of the daemon.
async fn watch(
    client: &Client,
    name: &McpServerName,
    at: usize,
    sender: &mpsc::Sender<Update>,
) -> Result<(), ClientError> {
    loop {
        let mut stream = client.with_retries(|| client.mcp_progress(name)).await?;
        loop {
            let update = match stream.next().await {
                Ok(Some(update)) => update,
                Ok(None) => break,
                Err(error) if error.is_connection_error() => break,
                Err(error) => return Err(error),
            };
            let is_last = matches!(update, McpProgress::Done { .. });
            if sender.send((at, Ok(update))).await.is_err() || is_last {
                return Ok(());
            }
        }
        // A stream that ends at once must not be asked for in a hurry.
        tokio::time::sleep(TICK).await;
    }
}

/// The same for one stream that cannot be taken up again.
pub(super) async fn follow_once(
    mut stream: McpProgressStream,
    name: &str,
    output: Output,
) -> Outcome<McpRuntimeInfo> {
    let mut display = ProgressDisplay::new(output);
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            update = stream.next() => {
                let update = update.map_err(refused)?.ok_or_else(|| {
                    Failure::new(
                        ErrorCode::InternalError,
                        anyhow::anyhow!("the daemon stopped before there was a result"),
                    )
                    .hint("try again")
                })?;
                display.update(name, &update);
                if let McpProgress::Done { runtime } = update {
                    return Ok(*runtime);
                }
            }
            _ = tick.tick() => display.draw(),
        }
    }
}

/// How it ended, in one line for stdout.
pub(super) fn outcome_line(name: &str, runtime: &McpRuntimeInfo) -> String {
    let status = wire_word(&runtime.status);
    match runtime.status {
        McpStatus::Connected => format!("{name} {status}, {}", tool_count(runtime.tool_count)),
        _ => format!("{name} {status}"),
    }
}

struct Active {
    phase: McpPhase,
    detail: Option<String>,
    since: Instant,
    /// What the installer output last.
    lines: VecDeque<String>,
}

struct ProgressDisplay {
    /// With JSON output, stderr stays empty as well.
    is_silent: bool,
    active: BTreeMap<String, Active>,
    line: StatusLine,
}

impl ProgressDisplay {
    fn new(output: Output) -> Self {
        let is_silent = output.is_json();
        Self {
            is_silent,
            active: BTreeMap::new(),
            line: if is_silent {
                StatusLine::hidden()
            } else {
                StatusLine::new()
            },
        }
    }

    fn update(&mut self, name: &str, update: &McpProgress) {
        for line in self.lines_for(name, update) {
            self.print(&line);
        }
    }

    /// The lines that stay.
    fn lines_for(&mut self, name: &str, update: &McpProgress) -> Vec<String> {
        match update {
            McpProgress::Phase { phase, detail } => {
                let is_same = self
                    .active
                    .get(name)
                    .is_some_and(|active| active.phase == *phase && active.detail == *detail);
                // After a restart of the daemon the way is told again.
                if is_same {
                    return Vec::new();
                }
                let lines = self
                    .active
                    .remove(name)
                    .filter(|active| active.phase == *phase)
                    .map(|active| active.lines)
                    .unwrap_or_default();
                self.active.insert(
                    name.to_owned(),
                    Active {
                        phase: *phase,
                        detail: detail.clone(),
                        since: Instant::now(),
                        lines,
                    },
                );
                vec![phase_line(name, *phase, detail.as_deref())]
            }
            McpProgress::Output { line } => {
                if let Some(active) = self.active.get_mut(name) {
                    if active.lines.len() == KEPT_LINES {
                        active.lines.pop_front();
                    }
                    active.lines.push_back(line.clone());
                }
                Vec::new()
            }
            McpProgress::Waiting { why, until, .. } => {
                self.active.remove(name);
                vec![waiting_line(name, why, *until, Timestamp::now())]
            }
            McpProgress::Done { runtime } => {
                let active = self.active.remove(name);
                let mut lines: Vec<String> = runtime
                    .notices
                    .iter()
                    .map(|notice| format!("{name}: {notice}"))
                    .collect();
                if runtime.status == McpStatus::Error {
                    let output = active.map(|active| active.lines).unwrap_or_default();
                    lines.extend(failure_lines(name, runtime, &output));
                }
                lines
            }
        }
    }

    fn print(&mut self, line: &str) {
        if self.is_silent {
            return;
        }
        self.line.clear();
        eprintln!("{}", printable(line));
        self.draw();
    }

    fn draw(&mut self) {
        if self.active.is_empty() {
            self.line.clear();
        } else {
            let active = &self.active;
            self.line.draw(|| status_text(active));
        }
    }
}

fn status_text(active: &BTreeMap<String, Active>) -> String {
    let parts: Vec<String> = active
        .iter()
        .map(|(name, active)| {
            let time = duration_text(Duration::from_secs(active.since.elapsed().as_secs().max(1)));
            let last = active.lines.back().map(|line| format!(": {}", line.trim()));
            format!("{name} {} {time}{}", active.phase, last.unwrap_or_default())
        })
        .collect();
    match parts.as_slice() {
        [one] => format!("… {one}"),
        several => format!(
            "… {} servers starting; {}",
            several.len(),
            several.join("; ")
        ),
    }
}

fn phase_line(name: &str, phase: McpPhase, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("{name}: {phase}: {detail}"),
        None => format!("{name}: {phase}"),
    }
}

fn waiting_line(name: &str, why: &str, until: Option<Timestamp>, now: Timestamp) -> String {
    // The rest is told with the last attempt.
    let why = why.lines().next().unwrap_or_default();
    let Some(until) = until else {
        return format!("{name}: {why}");
    };
    let left = until.duration_since(now).as_secs_f64().ceil().max(1.0);
    let left = duration_text(Duration::from_secs_f64(left));
    format!("{name}: {why}; tried again in {left}")
}

/// What the installer output, what went wrong, and what to do about it.
fn failure_lines(name: &str, runtime: &McpRuntimeInfo, output: &VecDeque<String>) -> Vec<String> {
    let mut lines: Vec<String> = output.iter().map(|line| format!("  | {line}")).collect();
    let place = runtime
        .error_phase
        .map_or_else(String::new, |phase| format!(" in {phase}"));
    let message = runtime
        .error_message
        .as_deref()
        .unwrap_or("it did not say why");
    let mut message = message.lines();
    lines.push(format!(
        "{name}: failed{place}: {}",
        message.next().unwrap_or_default()
    ));
    lines.extend(message.map(|line| format!("  {line}")));
    if let Some(hint) = &runtime.hint {
        lines.push(format!("hint: {hint}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn display() -> ProgressDisplay {
        ProgressDisplay {
            is_silent: true,
            active: BTreeMap::new(),
            line: StatusLine::hidden(),
        }
    }

    fn phase(phase: McpPhase, detail: Option<&str>) -> McpProgress {
        McpProgress::Phase {
            phase,
            detail: detail.map(str::to_owned),
        }
    }

    fn done(status: &str) -> McpProgress {
        let runtime = serde_json::from_value(json!({
            "status": status, "error_message": "no such package\nreally", "error_phase": "dep_install",
            "retry_count": 0, "tool_count": 1, "tools": [], "hint": "look at its name",
        }));
        McpProgress::Done {
            runtime: Box::new(runtime.expect("runtime")),
        }
    }

    #[test]
    fn every_phase_has_its_line_once() {
        let mut display = display();
        let install = phase(McpPhase::DepInstall, Some("mcp-server-time"));
        assert_eq!(
            display.lines_for("time", &install),
            ["time: dep_install: mcp-server-time"]
        );
        // Told again by the next daemon.
        assert_eq!(display.lines_for("time", &install), [""; 0]);
        let start = phase(McpPhase::ProcessStart, None);
        assert_eq!(display.lines_for("time", &start), ["time: process_start"]);
        assert_eq!(display.lines_for("time", &done("connected")), [""; 0]);
        assert!(display.active.is_empty());
    }

    #[test]
    fn a_failure_comes_with_what_the_installer_said_last() {
        let mut display = display();
        display.update("time", &phase(McpPhase::DepInstall, None));
        for number in 0..30 {
            display.update(
                "time",
                &McpProgress::Output {
                    line: format!("line {number}"),
                },
            );
        }
        assert_eq!(
            status_text(&display.active),
            "… time dep_install 1s: line 29"
        );
        let lines = display.lines_for("time", &done("error"));
        assert_eq!(lines.len(), KEPT_LINES + 3);
        assert_eq!(lines[0], "  | line 10");
        assert_eq!(
            lines[KEPT_LINES..],
            [
                "time: failed in dep_install: no such package",
                "  really",
                "hint: look at its name"
            ]
        );
    }

    #[test]
    fn what_the_box_was_not_given_is_told_at_the_end() {
        let mut update = done("connected");
        let McpProgress::Done { runtime } = &mut update else {
            panic!("it is done");
        };
        runtime.notices = vec!["network is locked to off".to_owned()];
        assert_eq!(
            display().lines_for("time", &update),
            ["time: network is locked to off"]
        );
    }

    #[test]
    fn who_waits_is_told_what_for() {
        let mut display = display();
        display.update("time", &phase(McpPhase::McpInit, None));
        let queued = McpProgress::Waiting {
            why: "queued until others have started".to_owned(),
            retry_count: 0,
            until: None,
        };
        assert_eq!(
            display.lines_for("time", &queued),
            ["time: queued until others have started"]
        );
        assert!(display.active.is_empty(), "nothing moves");
        let now = Timestamp::UNIX_EPOCH;
        let until = now + Duration::from_millis(1990);
        assert_eq!(
            waiting_line(
                "time",
                "failed in mcp_init: no key\nat all",
                Some(until),
                now
            ),
            "time: failed in mcp_init: no key; tried again in 2s"
        );
    }

    #[test]
    fn several_servers_share_the_progress_line() {
        let mut display = display();
        display.update("a", &phase(McpPhase::McpInit, None));
        display.update("b", &phase(McpPhase::DepInstall, None));
        assert_eq!(
            status_text(&display.active),
            "… 2 servers starting; a mcp_init 1s; b dep_install 1s"
        );
    }

    #[test]
    fn the_last_line_says_how_it_is() {
        let McpProgress::Done { runtime } = done("connected") else {
            panic!("it is done");
        };
        assert_eq!(outcome_line("time", &runtime), "time connected, 1 tool");
    }
}
