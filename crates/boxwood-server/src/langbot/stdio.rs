//! Action RPC over standard input and output, for a LangBot that starts its runtime itself.
//!
//! The pipes belong to threads of their own: a read cannot be taken back, and must not keep the
//! daemon from ending.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::assembly::MAX_MESSAGE_BYTES;
use super::conversation::Conversation;
use super::lines::{Lines, lines_of};
use super::{Speaker, today};
use crate::http::App;

/// A line may carry a whole message, escaped once more.
const MAX_LINE_BYTES: usize = 2 * MAX_MESSAGE_BYTES + 1024;

/// Messages read and not yet begun. The client waits beyond that.
const READ_AHEAD: usize = 64;

/// Serves the one client at the other end of the pipes; ends when it has closed its end and its last
/// request is answered.
pub(crate) async fn converse(app: Arc<App>) {
    let speaker = match today::greet_stdio(&app) {
        Some(caller) => Speaker::Today(caller),
        None => Speaker::June,
    };
    let (heard, mut messages) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || read(&mut io::stdin().lock(), &heard));
    let (mut conversation, answers) = Conversation::new(app, speaker);
    let writing = tokio::task::spawn_blocking(move || write(&mut io::stdout().lock(), answers));
    while let Some(message) = messages.recv().await {
        conversation.hear(message).await;
    }
    conversation.finish().await;
    drop(conversation);
    // Whatever went wrong with writing, nobody is left to be told.
    let _ = writing.await;
}

/// Ends with the input, or when nobody listens any more.
fn read(input: &mut impl BufRead, heard: &mpsc::Sender<Value>) {
    let mut lines = Lines::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MAX_LINE_BYTES as u64;
        match input.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::warn!(%error, "standard input cannot be read");
                return;
            }
        }
        // A line cut by the limit is no message, and neither is its rest.
        if let Some(message) = lines.push(&String::from_utf8_lossy(&line))
            && heard.blocking_send(message).is_err()
        {
            return;
        }
    }
}

fn write(output: &mut impl Write, mut answers: mpsc::Receiver<String>) {
    while let Some(answer) = answers.blocking_recv() {
        let written = lines_of(answer)
            .iter()
            .try_for_each(|line| writeln!(output, "{line}"))
            .and_then(|()| output.flush());
        if let Err(error) = written {
            tracing::debug!(%error, "nobody reads the answers any more");
            return;
        }
    }
}
