//! Starts a program without a task of its own, and without leaving it behind.
//!
//! A caller may vanish while the box is starting its program. The usual cure, a task per start,
//! costs a hop on the path that matters most; here the unfinished start moves into a task only
//! when its caller really is gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use boxwood_backend::{BoxFuture, Process, SpawnError, SpawnRequest};
use tokio::runtime::Handle;

use crate::leash::Leash;
use crate::parting::Parting;
use crate::session::Session;

pub(crate) struct Spawning {
    start: Option<BoxFuture<'static, Result<Process, SpawnError>>>,
    parting: Parting,
}

pub(crate) fn spawn(session: &Session, request: SpawnRequest) -> Spawning {
    let sandbox = Arc::clone(&session.sandbox);
    Spawning {
        start: Some(Box::pin(async move { sandbox.spawn(request).await })),
        parting: session.execs.parting(),
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
        let parting = self.parting.clone();
        runtime.spawn(async move {
            if let Ok(process) = start.await {
                drop(Leash::new(process.control, parting));
            }
        });
    }
}
