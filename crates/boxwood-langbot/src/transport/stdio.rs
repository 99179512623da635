//! Action RPC over standard input and output, for a LangBot that starts the daemon itself.
//!
//! Threads read and write the pipes: a blocking call cannot be cancelled, and must not keep the daemon
//! from exiting, as it would in the thread pool of the runtime.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::connection::Connection;
use super::line_framing::{LineDecoder, encode};
use super::message_assembler::MAX_MESSAGE_BYTES;
use crate::{Client, LangBot};

/// A line may contain a whole message, JSON-escaped once more.
const MAX_LINE_BYTES: usize = 2 * MAX_MESSAGE_BYTES + 1024;

/// Messages read but not yet handled. When full, reading waits.
const MESSAGE_QUEUE: usize = 64;

/// Serves the client at the other end of the pipes. Returns when it has closed its end and its last
/// request has completed.
pub async fn serve_stdio(langbot: Arc<LangBot>) {
    let client = Client::from_environment(&langbot);
    let (queue, mut messages) = mpsc::channel(MESSAGE_QUEUE);
    std::thread::spawn(move || read(&mut io::stdin().lock(), &queue));
    let (mut connection, responses) = Connection::new(langbot, client);
    let (finished, written) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        write(&mut io::stdout().lock(), responses);
        drop(finished);
    });
    while let Some(message) = messages.recv().await {
        connection.handle(message).await;
    }
    connection.finish().await;
    drop(connection);
    // Ends with an error when the sender is dropped.
    let _ = written.await;
}

/// Returns at the end of the input, or when the receiver is dropped.
fn read(input: &mut impl BufRead, queue: &mpsc::Sender<Value>) {
    let mut decoder = LineDecoder::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MAX_LINE_BYTES as u64;
        match input.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::warn!(%error, "failed to read standard input");
                return;
            }
        }
        // A line cut by the limit is not valid JSON, and neither is its rest, so both are ignored.
        if let Some(message) = decoder.push(&String::from_utf8_lossy(&line))
            && queue.blocking_send(message).is_err()
        {
            return;
        }
    }
}

fn write(output: &mut impl Write, mut responses: mpsc::Receiver<String>) {
    while let Some(response) = responses.blocking_recv() {
        let written = encode(response)
            .iter()
            .try_for_each(|line| writeln!(output, "{line}"))
            .and_then(|()| output.flush());
        if let Err(error) = written {
            tracing::debug!(%error, "failed to write to standard output; the client has gone");
            return;
        }
    }
}
