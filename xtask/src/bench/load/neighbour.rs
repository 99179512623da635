//! Latency in a quiet box while another box or a client loads the machine.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::Effort;
use super::super::clients::http::Connection;
use super::super::daemon::Daemon;
use super::super::exec::{exec_true, warm_session};
use super::super::measure::sample::Samples;
use super::super::measure::table::{Measured, Row};

const NOISY: &str = "/v1/sessions/bench-noisy";

/// Commands of the noisy box at the same time.
const COMMANDS: usize = 4;

/// How often the flood is switched on and off.
const ROUNDS: usize = 40;

/// Commands in the quiet box on each side of a round.
const EXECS: usize = 25;

/// Time for a flood to start, and to end.
const SETTLE: Duration = Duration::from_millis(150);

/// Connections that the flood keeps open before it drops the oldest.
const OPEN: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    Output,
    Forks,
    Connections,
}

impl Flood {
    fn what(self) -> &'static str {
        match self {
            Self::Output => "warm exec in a quiet box while another one floods its output",
            Self::Forks => "warm exec in a quiet box while another one forks as fast as it can",
            Self::Connections => "warm exec in a quiet box while a client floods connections",
        }
    }

    fn command(self) -> Option<&'static str> {
        match self {
            Self::Output => Some("yes"),
            Self::Forks => {
                Some("while :; do for n in 1 2 3 4 5 6 7 8; do /bin/true & done; wait; done")
            }
            Self::Connections => None,
        }
    }
}

pub(super) fn row(binary: &Path, effort: Effort, flood: Flood) -> Row {
    let mut note = String::new();
    let result =
        measure(binary, effort, flood, &mut note).unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: flood.what(),
        against: "the same while nothing else happens",
        at_most: Some(2.0),
        result,
        note,
    }
}

fn measure(binary: &Path, effort: Effort, flood: Flood, note: &mut String) -> Result<Measured> {
    let daemon = Daemon::start(binary)?;
    let mut quiet = warm_session(&daemon)?;
    quiet.call("POST", NOISY, "{}", 201)?;
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    let mut connections = 0;
    for _ in 0..effort.of(ROUNDS) {
        for _ in 0..EXECS {
            alone.time(|| exec_true(&mut quiet))?;
        }
        let running = Running::start(&daemon, flood)?;
        std::thread::sleep(SETTLE);
        for _ in 0..EXECS {
            beside.time(|| exec_true(&mut quiet))?;
        }
        connections += running.stop()?;
        std::thread::sleep(SETTLE);
    }
    *note = match flood {
        Flood::Output => format!("{COMMANDS} captured `yes` in one box of one CPU"),
        Flood::Forks => format!("{COMMANDS} loops that fork and exec, in one box of one CPU"),
        Flood::Connections => format!(
            "one thread outside of any box opened {connections} connections meanwhile, {OPEN} of them \
             at a time"
        ),
    };
    Ok(Measured::times(&beside, &alone))
}

/// A running flood.
enum Running {
    /// Each connection waits for a command. The daemon kills a command whose client disconnects, so dropping them ends
    /// the flood.
    Commands(Vec<Connection>),
    Connections {
        stop: Arc<AtomicBool>,
        opened: Arc<AtomicU64>,
        thread: JoinHandle<()>,
    },
}

impl Running {
    fn start(daemon: &Daemon, flood: Flood) -> Result<Self> {
        let Some(command) = flood.command() else {
            return Ok(Self::connections(daemon.address()));
        };
        let body = serde_json::json!({ "cmd": command, "timeout_sec": 60 }).to_string();
        let commands: Result<Vec<_>> = (0..COMMANDS)
            .map(|_| {
                let mut connection = daemon.connect()?;
                connection.send("POST", &format!("{NOISY}/exec"), &body)?;
                Ok(connection)
            })
            .collect();
        Ok(Self::Commands(commands?))
    }

    fn connections(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(AtomicU64::new(0));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&opened));
        let thread = std::thread::spawn(move || {
            let mut open = VecDeque::new();
            while !stopped.load(Ordering::Relaxed) {
                // The daemon may refuse connections during a flood.
                if let Ok(mut stream) = TcpStream::connect(address) {
                    let _ = stream.write_all(b"GET /v1/health HTTP/1.1\r\n");
                    open.push_back(stream);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                if open.len() > OPEN {
                    open.pop_front();
                }
            }
        });
        Self::Connections {
            stop,
            opened,
            thread,
        }
    }

    /// Returns the number of connections that were opened.
    fn stop(self) -> Result<u64> {
        match self {
            Self::Commands(mut connections) => {
                for connection in &mut connections {
                    ensure!(
                        connection.is_silent()?,
                        "a command of the flood ended by itself"
                    );
                }
                Ok(0)
            }
            Self::Connections {
                stop,
                opened,
                thread,
            } => {
                stop.store(true, Ordering::Relaxed);
                ensure!(thread.join().is_ok(), "the flooding thread panicked");
                Ok(opened.load(Ordering::Relaxed))
            }
        }
    }
}
