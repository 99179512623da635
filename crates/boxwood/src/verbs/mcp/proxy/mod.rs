//! `boxwood mcp proxy`: connects a client on stdin and stdout to the gateway's HTTP endpoint `/mcp/NAME`.
//!
//! Each line of the client is posted unchanged, and each message of the gateway is written as one line. Beyond that, the
//! bridge keeps the session and its headers, resumes broken streams and creates a new session after a restart of the daemon.

mod bridge;
mod error;
mod exchange;
mod headers;
mod message;
mod session;

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpServerName;
use boxwood_client::Client;
use boxwood_mcp::MAX_MESSAGE_BYTES;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};

use crate::failure::{Failure, Outcome};
use crate::interactive::interrupts::Interrupts;
use bridge::Bridge;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp proxy time
  boxwood mcp proxy _all                             All servers together
  boxwood mcp config time --client claude            Print a configuration that starts it

Needs a daemon (`boxwood serve`), and continues when the daemon is restarted.";

/// Lines in each direction. A full queue stops the sender.
const QUEUE: usize = 64;
/// For the requests in flight when the client closes stdin.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connect a server to stdin and stdout
///
/// Uses the Model Context Protocol, and is normally started by an MCP client.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::verbs::mcp) struct Args {
    /// Name of the server; `_all` for all servers together
    #[arg(value_parser = server_or_all)]
    name: String,
}

fn server_or_all(text: &str) -> Result<String, String> {
    if text == "_all" {
        return Ok(text.to_owned());
    }
    let name = McpServerName::new(text).map_err(|error| error.to_string())?;
    Ok(name.into())
}

pub(in crate::verbs::mcp) async fn main(args: &Args, client: &Client) -> Outcome<u8> {
    let (output, output_lines) = mpsc::channel(QUEUE);
    let mut writer = tokio::spawn(write(output_lines));
    let (input, input_lines) = mpsc::channel(QUEUE);
    // Dropped at the end of stdin, while lines may still be queued.
    let (stdin_open, mut stdin_closed) = watch::channel(());
    tokio::spawn(read(input, stdin_open));
    let mut interrupts = Interrupts::watch()?;
    let bridge = Arc::new(Bridge::new(client.clone(), args.name.clone(), output));
    let finish_timeout = async {
        // Nothing is ever sent, so this returns when stdin is closed.
        let _ = stdin_closed.changed().await;
        tokio::time::sleep(FINISH_TIMEOUT).await;
    };
    let ended = tokio::select! {
        ended = serve(&bridge, input_lines) => ended,
        () = finish_timeout => Ok(0),
        _ = interrupts.next() => Ok(0),
        // The client has closed stdout.
        _ = &mut writer => Ok(0),
    };
    bridge.close().await;
    drop(bridge);
    if !writer.is_finished() {
        // The process exits, whether or not all lines were written.
        let _ = tokio::time::timeout(WRITE_TIMEOUT, &mut writer).await;
    }
    ended
}

/// Returns when stdin is closed and all requests have responses. A line can take as long as a hosted server takes to start.
async fn serve(bridge: &Arc<Bridge>, mut lines: mpsc::Receiver<Outcome<Vec<u8>>>) -> Outcome<u8> {
    while let Some(line) = lines.recv().await {
        bridge.handle(line?).await;
    }
    bridge.finish().await;
    Ok(0)
}

async fn read(lines: mpsc::Sender<Outcome<Vec<u8>>>, _open: watch::Sender<()>) {
    let mut input = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = Vec::new();
        // One more byte for the line break.
        let mut bounded = (&mut input).take(MAX_MESSAGE_BYTES as u64 + 1);
        let outcome = match bounded.read_until(b'\n', &mut line).await {
            Ok(0) => return,
            Ok(_) if line.len() > MAX_MESSAGE_BYTES && !line.ends_with(b"\n") => {
                Err(Failure::usage(format!(
                    "a message is longer than {MAX_MESSAGE_BYTES} bytes"
                )))
            }
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(_) => Ok(line),
            Err(error) => Err(Failure::local("cannot read stdin", error)),
        };
        let is_last = outcome.is_err();
        if lines.send(outcome).await.is_err() || is_last {
            return;
        }
    }
}

/// Returns when the bridge is dropped or stdout is closed.
async fn write(mut lines: mpsc::Receiver<String>) {
    let mut output = tokio::io::stdout();
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
