//! Writes one line after the other, each of them whole.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::error::Ended;
use super::queue::Queued;
use super::shared::Shared;
use crate::hosting::Wire;

/// A line that has begun is finished even after the connection was let go, if the server reads at all:
/// the next one to attach would add to half a line.
const TO_FINISH: Duration = Duration::from_secs(5);

/// Whether a server whose input is closed is about to end altogether.
const TO_EXIT: Duration = Duration::from_secs(1);

pub(crate) async fn write(
    wire: Arc<dyn Wire>,
    shared: Arc<Shared>,
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
        let late = async {
            shared.stop.cancelled().await;
            tokio::time::sleep(TO_FINISH).await;
        };
        let sent = tokio::select! {
            sent = wire.send(outgoing.line) => sent,
            () = late => return,
        };
        if let Err(error) = sent {
            // The reader tells of an exit, once it has read what came before it.
            if tokio::time::timeout(TO_EXIT, wire.exited()).await.is_err() {
                let message = error.to_string();
                shared.end(&Ended::InputClosed { message });
            }
            return;
        }
    }
}
