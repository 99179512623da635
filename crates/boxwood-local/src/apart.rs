//! A start that goes on when its caller goes away.

use std::io;
use std::sync::Arc;

use boxwood_backend::{BoxFuture, Sandbox, StartError};

use crate::host::LocalHost;

/// Runs `start` in a task of its own: a caller that goes away half-way must not leave half a box. The
/// box that then nobody wants is removed.
pub fn start_apart<S: Sandbox + 'static>(
    host: &LocalHost,
    start: impl Future<Output = Result<Arc<S>, StartError>> + Send + 'static,
) -> BoxFuture<'static, Result<Arc<dyn Sandbox>, StartError>> {
    let work = host.busy.enter();
    host.pulse.beat();
    let (tell, told) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let outcome = start.await;
        if let Err(Ok(unwanted)) = tell.send(outcome)
            && let Err(error) = unwanted.stop().await
        {
            tracing::warn!(%error, "a box that nobody wanted any more was not removed");
        }
        drop(work);
    });
    Box::pin(async move {
        match told.await {
            Ok(outcome) => Ok(outcome? as Arc<dyn Sandbox>),
            Err(error) => Err(StartError::Step {
                step: "run the start".to_owned(),
                source: io::Error::other(error),
            }),
        }
    })
}
