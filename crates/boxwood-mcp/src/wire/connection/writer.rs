//! Writes the queued lines to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::state::ConnectionState;
use super::write_queue::Queued;
use crate::hosting::ProcessIo;
use crate::wire::error::CloseReason;

/// A started line is completed after the connection was closed, because the next connection must not
/// continue half a line.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to wait for the exit of a server that closed its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn write(
    wire: Arc<dyn ProcessIo>,
    shared: Arc<ConnectionState>,
    mut lines: mpsc::Receiver<Queued>,
) {
    loop {
        let queued = tokio::select! {
            () = shared.stop.cancelled() => return,
            queued = lines.recv() => queued,
        };
        let Some(Queued { outgoing, .. }) = queued else {
            return;
        };
        if outgoing
            .call
            .is_some_and(|id| !shared.pending.mark_written(id))
        {
            continue;
        }
        let bytes = outgoing.line.len();
        shared
            .log
            .sent(&outgoing.what, outgoing.id.as_deref(), bytes);
        let finish_timeout = async {
            shared.stop.cancelled().await;
            tokio::time::sleep(FINISH_TIMEOUT).await;
        };
        let sent = tokio::select! {
            sent = wire.send(outgoing.line) => sent,
            () = finish_timeout => return,
        };
        if let Err(error) = sent {
            // The reader reports the exit after it has read the remaining output.
            if tokio::time::timeout(EXIT_TIMEOUT, wire.exited())
                .await
                .is_err()
            {
                let message = error.to_string();
                shared.end(&CloseReason::InputClosed { message });
            }
            return;
        }
    }
}
