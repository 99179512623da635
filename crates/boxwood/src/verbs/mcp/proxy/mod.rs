//! `boxwood mcp proxy`: a hosted server for a client that only starts programs.
//!
//! Comes in: JSON-RPC messages on stdin, one per line. Goes out: the gateway's answers on stdout, one
//! per line and otherwise as they came. Never here: what a message is about, beyond its id and method.

mod bridge;
mod exchange;
mod listen;
mod mirrored;
mod open;
mod peek;
mod replies;
mod session;
mod wishes;

use std::sync::Arc;
use std::time::Duration;

use boxwood_client::Client;
use boxwood_mcp::MAX_MESSAGE_BYTES;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};

use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use bridge::Bridge;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp proxy time
  boxwood mcp proxy _all                             All servers as one
  boxwood mcp config time --client claude            What makes a client start it

Needs a daemon (`boxwood serve`), found as for every verb, and goes on when that is restarted.";

/// Lines that wait; whoever has more waits too.
const QUEUE: usize = 64;
/// For what is going on when the client leaves.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Bridge a server to stdin and stdout
///
/// Speaks the Model Context Protocol, so a client has to start it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::verbs::mcp) struct Args {
    /// Name of the server; `_all` for all of them as one
    #[arg(value_parser = server_or_all)]
    name: String,
}

fn server_or_all(text: &str) -> Result<String, String> {
    if text == "_all" {
        return Ok(text.to_owned());
    }
    super::server_name(text).map(String::from)
}

pub(in crate::verbs::mcp) async fn main(args: &Args, client: &Client) -> Outcome<u8> {
    let (say, said) = mpsc::channel(QUEUE);
    let mut writer = tokio::spawn(write(said));
    let (hear, heard) = mpsc::channel(QUEUE);
    // Closed with the input, also while lines of it still wait.
    let (open, mut closed) = watch::channel(());
    tokio::spawn(read(hear, open));
    let mut interrupts = Interrupts::watch()
        .map_err(|error| Failure::local("signals could not be watched", error))?;
    let bridge = Arc::new(Bridge::new(client.clone(), args.name.clone(), say));
    let left = async {
        // Never sent to.
        let _ = closed.changed().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    let ended = tokio::select! {
        ended = serve(&bridge, heard) => ended,
        () = left => Ok(0),
        _ = interrupts.next() => Ok(0),
        // Nobody reads our answers any more.
        _ = &mut writer => Ok(0),
    };
    bridge.leave().await;
    drop(bridge);
    if !writer.is_finished() && tokio::time::timeout(LAST_WRITE, &mut writer).await.is_err() {
        writer.abort();
    }
    ended
}

/// Until the client has left and has all its answers. A line may take as long as a server takes to
/// start, so whoever waits for this watches the client as well.
async fn serve(bridge: &Arc<Bridge>, mut heard: mpsc::Receiver<Outcome<Vec<u8>>>) -> Outcome<u8> {
    while let Some(line) = heard.recv().await {
        Bridge::take(bridge, line?).await;
    }
    bridge.finish().await;
    Ok(0)
}

async fn read(hear: mpsc::Sender<Outcome<Vec<u8>>>, _open: watch::Sender<()>) {
    let mut input = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = Vec::new();
        // And the end of the line.
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
            Err(error) => Err(Failure::local("standard input could not be read", error)),
        };
        let is_last = outcome.is_err();
        if hear.send(outcome).await.is_err() || is_last {
            return;
        }
    }
}

/// Ends when everything is said, or when nobody listens.
async fn write(mut said: mpsc::Receiver<String>) {
    let mut output = tokio::io::stdout();
    while let Some(mut line) = said.recv().await {
        line.push('\n');
        if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
