//! Starts and adoptions that run to completion even if the caller stops waiting.

use std::io;
use std::sync::Arc;

use boxwood_backend::{AdoptError, Adopted, BoxFuture, Sandbox, StartError};

use crate::host::LocalHost;
use crate::sandbox::LocalBox;

/// Runs `start` in its own task, so that a caller that is cancelled cannot leave a half-created box. If
/// the caller has gone by then, the finished box is stopped.
pub fn spawn_start(
    host: &LocalHost,
    start: impl Future<Output = Result<Arc<LocalBox>, StartError>> + Send + 'static,
) -> BoxFuture<'static, Result<Arc<dyn Sandbox>, StartError>> {
    let work = host.active_work.enter();
    host.last_activity.touch();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let outcome = start.await;
        if let Err(Ok(unwanted)) = sender.send(outcome)
            && let Err(error) = unwanted.stop().await
        {
            tracing::warn!(%error, "failed to remove a box whose start was cancelled");
        }
        drop(work);
    });
    Box::pin(async move {
        match receiver.await {
            Ok(outcome) => Ok(outcome? as Arc<dyn Sandbox>),
            Err(error) => Err(StartError::Step {
                step: "run the start".to_owned(),
                source: io::Error::other(error),
            }),
        }
    })
}

/// Runs an adoption in its own task, so that it is never abandoned half-way. If the caller has gone by
/// then, the box is detached again.
pub fn spawn_adopt(
    host: &LocalHost,
    adopt: impl Future<Output = Result<Adopted, AdoptError>> + Send + 'static,
) -> BoxFuture<'static, Result<Adopted, AdoptError>> {
    let work = host.active_work.enter();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        if let Err(Ok(unwanted)) = sender.send(adopt.await) {
            unwanted.sandbox.detach();
            tracing::warn!("adoption was cancelled; the box was detached again");
        }
        drop(work);
    });
    Box::pin(async move {
        match receiver.await {
            Ok(outcome) => outcome,
            Err(error) => Err(AdoptError::Step {
                step: "run the adoption".to_owned(),
                source: io::Error::other(error),
            }),
        }
    })
}
