//! Starts a program without a task of its own, and without leaving it behind.
//!
//! A caller may vanish while the box is starting its program. The usual cure, a task per start,
//! costs a hop on the path that matters most; here the unfinished start moves into a task only
//! when its caller really is gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use boxwood_backend::{BoxFuture, Process, Sandbox, SpawnError, SpawnRequest};
use tokio::runtime::Handle;

use crate::leash::kill_later;

pub(crate) struct Spawning {
    start: Option<BoxFuture<'static, Result<Process, SpawnError>>>,
}

pub(crate) fn spawn(sandbox: Arc<dyn Sandbox>, request: SpawnRequest) -> Spawning {
    Spawning {
        start: Some(Box::pin(async move { sandbox.spawn(request).await })),
    }
}

impl Future for Spawning {
    type Output = Result<Process, SpawnError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(start) = &mut self.start else {
            return Poll::Pending;
        };
        let outcome = std::task::ready!(start.as_mut().poll(context));
        self.start = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Spawning {
    fn drop(&mut self) {
        let (Some(start), Ok(runtime)) = (self.start.take(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            if let Ok(process) = start.await {
                kill_later(process.control);
            }
        });
    }
}
