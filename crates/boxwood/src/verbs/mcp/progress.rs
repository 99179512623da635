//! Progress of servers that start: one line per phase on stderr, with a status line below them on a terminal, and the
//! final status of each server on stdout.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use boxwood_api::{McpPhase, McpProgress, McpRuntimeInfo, McpServerInfo, McpServerName, McpStatus};
use boxwood_client::{Client, ClientError, McpProgressStream};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::refused;
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::flags::duration_text;
use crate::output::printable::printable;
use crate::output::status_line::StatusLine;
use crate::output::{Output, wire_word};

const TICK: Duration = Duration::from_millis(120);
/// Lines of the installer that are shown when the start fails.
const KEPT_LINES: usize = 20;
/// Updates to be printed. A full queue stops the readers of the progress streams.
const QUEUE: usize = 256;

/// Shows the progress of the servers and then their status. Returns 1 if one of them has failed.
pub(super) async fn settle(
    client: &Client,
    mut servers: Vec<McpServerInfo>,
    wait: Wait,
    output: Output,
) -> Outcome<u8> {
    let code = wait.for_status(client, &mut servers, output).await?;
    if output.is_json() {
        Output::json_of_all(&servers)?;
    } else {
        for server in &servers {
            print(server.name.as_str(), &server.runtime)?;
        }
    }
    Ok(code)
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Wait {
    /// Do not wait until the servers are connected
    #[arg(long)]
    pub(super) no_wait: bool,
}

impl Wait {
    pub(super) const NEVER: Self = Self { no_wait: true };

    /// Updates the servers to their final status. Returns 1 if one of them has failed.
    pub(super) async fn for_status(
        self,
        client: &Client,
        servers: &mut [McpServerInfo],
        output: Output,
    ) -> Outcome<u8> {
        if !self.no_wait {
            follow(client, servers, output).await?;
        }
        let mut statuses = servers.iter().map(|server| server.runtime.status);
        Ok(if statuses.any(|status| status == McpStatus::Error) {
            EXIT_ERROR
        } else {
            0
        })
    }
}

async fn follow(client: &Client, servers: &mut [McpServerInfo], output: Output) -> Outcome<()> {
    let (sender, mut update) = mpsc::channel(QUEUE);
    for (index, server) in servers.iter().enumerate() {
        let (client, name, sender) = (client.clone(), server.name.clone(), sender.clone());
        tokio::spawn(async move {
            let ended = watch(&client, &name, index, &sender).await;
            if let Err(error) = ended {
                // Fails if another server's error has already ended the command.
                let _ = sender.send((index, Err(error))).await;
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
                let Some((index, update)) = update else { break };
                let update = update.map_err(refused)?;
                let name = servers[index].name.to_string();
                display.update(&name, &update);
                if let McpProgress::Done { runtime } = update {
                    servers[index].runtime = *runtime;
                    settled += 1;
                }
            }
            _ = tick.tick() => display.draw(),
        }
    }
    Ok(())
}

type Update = (usize, Result<McpProgress, ClientError>);

/// Forwards the progress of one server, also after a restart of the daemon.
async fn watch(
    client: &Client,
    name: &McpServerName,
    index: usize,
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
            if sender.send((index, Ok(update))).await.is_err() || is_last {
                return Ok(());
            }
        }
        // A stream that ends at once is not requested again immediately.
        tokio::time::sleep(TICK).await;
    }
}

/// Shows the progress of one stream, which cannot be resumed, and returns the final status.
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
                    Failure::internal("the daemon stopped before the test ended").hint("try again")
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

/// Prints the final status of a server on stdout.
pub(super) fn print(name: &str, runtime: &McpRuntimeInfo) -> Outcome<()> {
    Output::line(&outcome_line(name, runtime))
}

fn outcome_line(name: &str, runtime: &McpRuntimeInfo) -> String {
    let status = wire_word(&runtime.status);
    match (runtime.status, runtime.tool_count) {
        (McpStatus::Connected, 1) => format!("{name} {status}, 1 tool"),
        (McpStatus::Connected, count) => format!("{name} {status}, {count} tools"),
        _ => format!("{name} {status}"),
    }
}

struct Active {
    phase: McpPhase,
    detail: Option<String>,
    since: Instant,
    /// The last lines of the installer.
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
            line: StatusLine::new(!is_silent),
        }
    }

    fn update(&mut self, name: &str, update: &McpProgress) {
        for line in self.lines_for(name, update) {
            self.print(&line);
        }
    }

    /// The lines to print.
    fn lines_for(&mut self, name: &str, update: &McpProgress) -> Vec<String> {
        match update {
            McpProgress::Phase { phase, detail } => {
                let previous = self.active.remove(name);
                let previous = previous.filter(|active| active.phase == *phase);
                // After a restart of the daemon the phases are sent again.
                if previous
                    .as_ref()
                    .is_some_and(|active| active.detail == *detail)
                {
                    self.active
                        .extend(previous.map(|active| (name.to_owned(), active)));
                    return Vec::new();
                }
                let active = Active {
                    phase: *phase,
                    detail: detail.clone(),
                    since: Instant::now(),
                    lines: previous.map(|active| active.lines).unwrap_or_default(),
                };
                self.active.insert(name.to_owned(), active);
                let detail = detail.iter().map(|detail| format!(": {detail}"));
                vec![format!("{name}: {phase}{}", detail.collect::<String>())]
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

fn waiting_line(name: &str, why: &str, until: Option<Timestamp>, now: Timestamp) -> String {
    // The other lines are printed after the last attempt.
    let why = why.lines().next().unwrap_or_default();
    let Some(until) = until else {
        return format!("{name}: {why}");
    };
    let left = until.duration_since(now).as_secs_f64().ceil().max(1.0);
    let left = duration_text(Duration::from_secs_f64(left));
    format!("{name}: {why}; next attempt in {left}")
}

/// The last lines of the installer, the error and the hint.
fn failure_lines(name: &str, runtime: &McpRuntimeInfo, output: &VecDeque<String>) -> Vec<String> {
    let mut lines: Vec<String> = output.iter().map(|line| format!("  | {line}")).collect();
    let phase_text = runtime
        .error_phase
        .map_or_else(String::new, |phase| format!(" in {phase}"));
    let message = runtime
        .error_message
        .as_deref()
        .unwrap_or("no reason given");
    let mut message = message.lines();
    lines.push(format!(
        "{name}: failed{phase_text}: {}",
        message.next().unwrap_or_default()
    ));
    lines.extend(message.map(|line| format!("  {line}")));
    if let Some(hint) = &runtime.hint {
        lines.push(format!("hint: {hint}"));
    }
    lines
}

#[cfg(test)]
mod tests;
