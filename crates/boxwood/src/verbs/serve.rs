//! `boxwood serve`: the daemon.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use boxwood_api::ErrorCode;
use boxwood_server::config::{LogConfig, LogFormat, ServiceManager};
use boxwood_server::{Flags, Parent, Ready, Start, config};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::backend;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood serve
  boxwood serve --listen 127.0.0.1:0 --state-dir /tmp/b     A second daemon on a free port
  boxwood serve --config /etc/boxwood/config.toml
  boxwood serve --stdio                                     As the child of a LangBot
  boxwood serve --until-stdin-closes --listen none          As the child of any other program
  boxwood serve --takeover                                  In the place of the running daemon
  boxwood serve --on-shutdown keep                          Boxes run on until the next start

Prints one line on stdout when it accepts connections, and another when it found boxes of an
earlier daemon:
  boxwood: listening on http://127.0.0.1:5410 (native backend)
  boxwood: 3 sessions adopted
Logs go to stderr. SIGTERM and Ctrl-C drain: no new connections, running requests may end, then
every box is stopped, or what --on-shutdown says. A second one does not wait for requests. A daemon
that is killed leaves its boxes to the next one on the same state directory.

Every setting of the configuration file is also a variable, as in BOXWOOD_SESSION__TTL_SEC=600.";

/// Run the daemon
///
/// Listens on the loopback address by default. Its own user and root need no token there, other users do
/// (`boxwood token`). Also listens on a socket in its run directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address and port to listen on, or `none` for the socket alone [default: 127.0.0.1:5410]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        env = "BOXWOOD_LISTEN",
        hide_env_values = true
    )]
    listen: Option<String>,

    /// Directory for what outlives the daemon
    #[arg(
        long,
        value_name = "DIR",
        env = "BOXWOOD_STATE_DIR",
        hide_env_values = true
    )]
    state_dir: Option<PathBuf>,

    /// What runs the boxes: auto, local, native, docker, podman, nsjail or e2b [default: auto]
    ///
    /// `auto` and `local` take the first that works, in that order, whenever a session is made; a
    /// named one is used or nothing is. Profiles and requests may name another.
    #[arg(
        long,
        value_name = "NAME",
        env = "BOXWOOD_BACKEND",
        hide_env_values = true
    )]
    backend: Option<String>,

    /// Configuration file
    #[arg(
        long,
        value_name = "FILE",
        env = "BOXWOOD_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,

    /// Speak LangBot's action RPC on stdin and stdout, and end with stdin
    ///
    /// For a LangBot that starts its own runtime. Everything else, the relay above all, is served on
    /// the port as always; the line for scripts goes to stderr.
    #[arg(long, conflicts_with = "takeover")]
    stdio: bool,

    /// End with stdin, from which nothing is read
    ///
    /// For a program that starts a daemon of its own: however that program ends, its daemon ends as if
    /// told to stop. Another daemon cannot take over from it.
    #[arg(long, conflicts_with_all = ["takeover", "stdio"])]
    until_stdin_closes: bool,

    /// Take over from the daemon that runs on the same state directory
    ///
    /// It hands over its sockets, lets running requests end, leaves its boxes as they are and ends.
    /// No request is refused meanwhile. Without such a daemon this one starts as usual.
    #[arg(long)]
    takeover: bool,

    /// What a daemon that is told to stop does with boxes [default: stop]
    ///
    /// `stop` removes them, `keep` leaves them to the next daemon, `stop_ephemeral` only those of
    /// persistent sessions.
    #[arg(
        long,
        value_name = "MODE",
        env = "BOXWOOD_SHUTDOWN__BOXES",
        hide_env_values = true
    )]
    on_shutdown: Option<String>,
}

#[derive(Serialize)]
struct ReadyLine {
    url: String,
    /// The one that boxes get now; null while none works.
    backend: Option<String>,
    pid: u32,
    /// The daemon that this one took over from.
    followed_pid: Option<u32>,
    adopted_sessions: usize,
    lost_sessions: usize,
    ledger_rebuilt: bool,
}

/// For threads of a daemon that has ended to notice. What they are at is no longer theirs.
const LAST_THREADS: Duration = Duration::from_secs(5);

/// Load, build, spawn, drain.
pub(crate) fn main(args: &Args, output: Output) -> Outcome<()> {
    // First of all: its sockets are known by their numbers.
    let manager = ServiceManager::take().map_err(|error| {
        Failure::new(ErrorCode::ValidationError, error)
            .hint("these variables are the service manager's; leave them to it")
    })?;
    let config = config::load(&Flags {
        config: args.config.clone(),
        listen: args.listen.clone(),
        state_dir: args.state_dir.clone(),
        backend: args.backend.clone(),
        on_shutdown: args.on_shutdown.clone(),
        ..Flags::default()
    })?;
    start_log(&config.log)?;
    let start = if args.takeover {
        Start::following(&config, manager)?
    } else {
        Start::alone(&config, manager)?
    };
    // Given back when nothing of this daemon is left, threads included: the next one waits for it.
    let _claim = start.claim();
    let backends = backend::launch(&config, boxwood_server::PoolUse::Ahead)?;
    let runtime = crate::runtime::for_boxes()?;
    let parent = match (args.stdio, args.until_stdin_closes) {
        (true, _) => Parent::OnStdio,
        (false, true) => Parent::HoldsStdin,
        (false, false) => Parent::None,
    };
    let on_ready = |ready: &Ready| match parent {
        Parent::OnStdio => eprintln!("{}", sentences(ready)),
        Parent::HoldsStdin | Parent::None => tell_ready(ready, output),
    };
    let served = runtime.block_on(boxwood_server::serve(
        config, backends, start, parent, on_ready,
    ));
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(served?)
}

/// The lines that scripts wait for. A closed stdout is ignored.
fn tell_ready(ready: &Ready, output: Output) {
    if output.is_json() {
        let backend = ready.backend.name.clone();
        let _ = Output::json_line(&ReadyLine {
            url: ready.url(),
            backend: backend.filter(|_| ready.backend.available),
            pid: std::process::id(),
            followed_pid: ready.followed,
            adopted_sessions: ready.recovery.adopted,
            lost_sessions: ready.recovery.lost,
            ledger_rebuilt: ready.recovery.rebuilt,
        });
    } else {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{}", sentences(ready));
        let _ = stdout.flush();
    }
}

fn sentences(ready: &Ready) -> String {
    let mut lines = vec![sentence(ready)];
    if let Some(pid) = ready.followed {
        lines.push(format!("boxwood: took over from pid {pid}"));
    }
    if !ready.recovery.is_empty() {
        lines.push(format!("boxwood: {}", ready.recovery));
    }
    lines.join("\n")
}

fn sentence(ready: &Ready) -> String {
    let (url, backend) = (ready.url(), &ready.backend);
    let backend = match (&backend.name, backend.available) {
        (Some(name), true) => format!("{name} backend"),
        (Some(name), false) => {
            format!("{name} backend, which does not work yet: see `boxwood doctor`")
        }
        (None, _) => "no backend".to_owned(),
    };
    format!("boxwood: listening on {url} ({backend})")
}

/// The library that speaks `WebSocket` writes down whole messages at `trace`, and in those are the
/// values of environment variables and LangBot's configuration: it is left out of `trace`.
fn log_filter(filter: &str) -> Outcome<EnvFilter> {
    // Nothing asked for means errors.
    let asked = if filter.trim().is_empty() {
        "error"
    } else {
        filter
    };
    // The MCP library writes down whole messages, and clients' mistakes as warnings.
    let quiet = format!("{asked},tungstenite=warn,tokio_tungstenite=warn,rmcp=error");
    EnvFilter::try_new(quiet).map_err(|error| {
        Failure::usage(format!("`{filter}` is not a log filter: {error}"))
            .hint("write `info`, or `boxwood_session=debug,info`")
    })
}

fn start_log(log: &LogConfig) -> Outcome<()> {
    let filter = log_filter(log.filter.as_deref().unwrap_or("info"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A closed stderr must not stop the daemon, and reporting it on stderr would.
        .log_internal_errors(false)
        .with_ansi(false);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("the log could not be started: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_never_written_down() {
        for filter in ["trace", "tungstenite=trace", ""] {
            let text = log_filter(filter).expect("a filter").to_string();
            assert!(text.contains("tungstenite=warn"), "{text}");
            assert!(!text.contains("tungstenite=trace"), "{text}");
        }
        assert!(log_filter("=&!").is_err());
    }
}
