//! Starts and adoptions that run to completion even if the caller stops waiting.

use std::io;
use std::sync::Arc;

use boxwood_api::with_causes;
use boxwood_backend::{AdoptError, Adopted, BoxFuture, Sandbox, StartError, start_step};
use tokio::sync::oneshot;

use crate::adopt::step;
use crate::host::LocalHost;
use crate::sandbox::LocalBox;

/// Runs `start` in its own task, so that a caller that is cancelled cannot leave a half-created box. If
/// the caller has gone by then, the finished box is stopped.
pub fn spawn_start(
    host: &LocalHost,
    start: impl Future<Output = Result<Arc<LocalBox>, StartError>> + Send + 'static,
) -> BoxFuture<'static, Result<Arc<dyn Sandbox>, StartError>> {
    host.last_activity.touch();
    let started = spawn(host, start, |unwanted: Arc<LocalBox>| async move {
        if let Err(error) = unwanted.stop().await {
            tracing::warn!(error = %with_causes(&error), "failed to remove a box whose start was cancelled");
        }
    });
    Box::pin(async move {
        let outcome = started.await;
        let outcome = outcome.map_err(|error| start_step("run the start")(io::Error::other(error)));
        Ok(outcome?? as Arc<dyn Sandbox>)
    })
}

/// Runs an adoption in its own task, so that it is never abandoned half-way. If the caller has gone by
/// then, the box is detached again.
pub fn spawn_adopt(
    host: &LocalHost,
    adopt: impl Future<Output = Result<Adopted, AdoptError>> + Send + 'static,
) -> BoxFuture<'static, Result<Adopted, AdoptError>> {
    let adopted = spawn(host, adopt, |unwanted: Adopted| async move {
        unwanted.sandbox.detach();
        tracing::warn!("adoption was cancelled; the box was detached again");
    });
    Box::pin(async move {
        let outcome = adopted.await;
        outcome.map_err(|error| step("run the adoption")(io::Error::other(error)))?
    })
}

/// Runs `work` in its own task. `undo` gets the result if nothing waits for it any more.
fn spawn<T, E, U>(
    host: &LocalHost,
    work: impl Future<Output = Result<T, E>> + Send + 'static,
    undo: impl FnOnce(T) -> U + Send + 'static,
) -> oneshot::Receiver<Result<T, E>>
where
    T: Send + 'static,
    E: Send + 'static,
    U: Future<Output = ()> + Send,
{
    let active = host.active_work.enter();
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        if let Err(Ok(unwanted)) = sender.send(work.await) {
            undo(unwanted).await;
        }
        drop(active);
    });
    receiver
}
