//! A start, or a taking over, that goes on when its caller goes away.

use std::io;
use std::sync::Arc;

use boxwood_backend::{AdoptError, Adopted, BoxFuture, Sandbox, StartError};

use crate::host::LocalHost;
use crate::local_box::LocalBox;
use crate::reunion::TakenOver;

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

/// Runs the taking over of a box in a task of its own: half of it must not be left either. A box that
/// nobody waits for any more is let go of, as if nobody had called. `wrap` is whatever the backend puts
/// around its boxes.
pub fn adopt_apart(
    host: &LocalHost,
    adopt: impl Future<Output = Result<TakenOver, AdoptError>> + Send + 'static,
    wrap: impl FnOnce(LocalBox) -> Arc<dyn Sandbox> + Send + 'static,
) -> BoxFuture<'static, Result<Adopted, AdoptError>> {
    let work = host.busy.enter();
    let (tell, told) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        if let Err(Ok(unwanted)) = tell.send(adopt.await) {
            unwanted.made.let_go();
            tracing::warn!("nobody waited for a box to be taken over");
        }
        drop(work);
    });
    Box::pin(async move {
        match told.await {
            Ok(outcome) => Ok(outcome?.into_adopted(wrap)),
            Err(error) => Err(AdoptError::Step {
                step: "run the taking over".to_owned(),
                source: io::Error::other(error),
            }),
        }
    })
}
