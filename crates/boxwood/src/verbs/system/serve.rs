//! `boxwood serve`: the daemon.

use std::path::PathBuf;
use std::time::Duration;

use boxwood_api::ErrorCode;
use boxwood_server::config::{LogConfig, LogFormat, ServiceManager};
use boxwood_server::{Flags, Parent, PoolUse, Ready, Start, config};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  boxwood serve
  boxwood serve --listen 127.0.0.1:0 --state-dir /tmp/b     Start a second daemon on a free port
  boxwood serve --config /etc/boxwood/config.toml
  boxwood serve --stdio                                     Run as a child of LangBot
  boxwood serve --until-stdin-closes --listen none          Run as a child of another program
  boxwood serve --takeover                                  Replace the running daemon
  boxwood serve --on-shutdown keep                          Keep boxes running for the next daemon

Prints a line on stdout when it accepts connections, and another if it adopted boxes of an earlier
daemon:
  boxwood: listening on http://127.0.0.1:5410 (native backend)
  boxwood: 3 sessions adopted
Logs are written to stderr. On SIGTERM and Ctrl-C the daemon accepts no new connections, waits for
running requests, and stops all boxes unless --on-shutdown says otherwise. A second signal ends the
wait. The boxes of a daemon that was killed are adopted by the next one with the same state directory.

Every setting of the configuration file can also be set by a variable, such as
BOXWOOD_SESSION__TTL_SEC=600.";

/// Run the daemon
///
/// Listens on the loopback address by default, and on a socket in its run directory. Its own user and root
/// need no token there; other users do (`boxwood token`).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address and port to listen on, or `none` for the socket only [default: 127.0.0.1:5410]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        env = "BOXWOOD_LISTEN",
        hide_env_values = true
    )]
    listen: Option<String>,

    /// Directory for persistent data
    #[arg(
        long,
        value_name = "DIR",
        env = "BOXWOOD_STATE_DIR",
        hide_env_values = true
    )]
    state_dir: Option<PathBuf>,

    /// Backend of the boxes: auto, local, native, docker, podman or nsjail [default: auto]
    ///
    /// `auto` and `local` use the first that works when a session is created, in the order native, docker,
    /// podman, nsjail. A named backend has no fallback. Profiles and requests can name another.
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

    /// Use LangBot's action RPC on stdin and stdout, and stop when stdin is closed
    ///
    /// For LangBot installations that start their own runtime. The other protocols are served on the port
    /// as usual; the startup line is printed on stderr.
    #[arg(long, conflicts_with = "takeover")]
    stdio: bool,

    /// Stop when stdin is closed
    ///
    /// For programs that start their own daemon: when the program ends, for any reason, its daemon stops
    /// like on SIGTERM. Another daemon cannot take over from it.
    #[arg(long, conflicts_with_all = ["takeover", "stdio"])]
    until_stdin_closes: bool,

    /// Take over from the daemon that uses the same state directory
    ///
    /// The other daemon passes on its sockets and boxes, finishes its requests and stops. No request is
    /// refused meanwhile. If there is no such daemon, this one starts as usual.
    #[arg(long)]
    takeover: bool,

    /// What happens to boxes when the daemon stops [default: stop]
    ///
    /// `stop` removes them, `keep` keeps them for the next daemon, `stop_ephemeral` keeps only those of
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

/// How long to wait for the remaining threads of a daemon that has stopped.
const LAST_THREADS: Duration = Duration::from_secs(5);

pub(crate) fn main(args: &Args, output: Output) -> Outcome<()> {
    // Before any descriptor is opened: the service manager's sockets are known by their numbers.
    let manager = ServiceManager::take().map_err(|error| {
        Failure::new(ErrorCode::ValidationError, error)
            .hint("these variables are set by the service manager; do not set them")
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
    // Released when nothing of this daemon is left, threads included: the next one waits for it.
    let _claim = start.claim();
    let (backends, runtime) = runtime::for_boxes(&config, PoolUse::Ahead)?;
    let parent = match (args.stdio, args.until_stdin_closes) {
        (true, _) => Parent::OnStdio,
        (false, true) => Parent::HoldsStdin,
        (false, false) => Parent::None,
    };
    let on_ready = |ready: &Ready| match parent {
        Parent::OnStdio => eprintln!("{}", ready_text(ready)),
        Parent::HoldsStdin | Parent::None => print_ready(ready, output),
    };
    let served = runtime.block_on(boxwood_server::serve(
        config, backends, start, parent, on_ready,
    ));
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(served?)
}

/// Prints the lines that scripts wait for. A closed stdout is ignored.
fn print_ready(ready: &Ready, output: Output) {
    let _ = if output.is_json() {
        let backend = ready.backend.name.clone();
        Output::json_line(&ReadyLine {
            url: ready.url(),
            backend: backend.filter(|_| ready.backend.available),
            pid: std::process::id(),
            followed_pid: ready.followed,
            adopted_sessions: ready.recovery.adopted,
            lost_sessions: ready.recovery.lost,
            ledger_rebuilt: ready.recovery.rebuilt,
        })
    } else {
        Output::line(&ready_text(ready))
    };
}

fn ready_text(ready: &Ready) -> String {
    let (url, available) = (ready.url(), ready.backend.available);
    let backend = match &ready.backend.name {
        Some(name) if available => format!("{name} backend"),
        Some(name) => format!("{name} backend, which does not work yet: see `boxwood doctor`"),
        None => "no backend".to_owned(),
    };
    let mut lines = vec![format!("boxwood: listening on {url} ({backend})")];
    let followed = ready
        .followed
        .map(|pid| format!("boxwood: took over from pid {pid}"));
    lines.extend(followed);
    if !ready.recovery.is_empty() {
        lines.push(format!("boxwood: {}", ready.recovery));
    }
    lines.join("\n")
}

/// The WebSocket library logs whole messages at `trace`, which contain values of environment variables and
/// LangBot's configuration, so its level is fixed.
fn log_filter(filter: &str) -> Outcome<EnvFilter> {
    let base_filter = if filter.trim().is_empty() {
        "error"
    } else {
        filter
    };
    // The MCP library logs whole messages, and errors of clients as warnings.
    let directives = format!("{base_filter},tungstenite=warn,tokio_tungstenite=warn,rmcp=error");
    EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!(
            "`log.filter`: `{filter}` is not a log filter: {error}"
        ))
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
    started.map_err(|error| Failure::usage(format!("cannot start the log: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_never_logged() {
        for filter in ["trace", "tungstenite=trace", ""] {
            let text = log_filter(filter).expect("a filter").to_string();
            assert!(text.contains("tungstenite=warn"), "{text}");
            assert!(!text.contains("tungstenite=trace"), "{text}");
        }
        assert!(log_filter("=&!").is_err());
    }
}
