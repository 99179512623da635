//! Starts a program in the caller's future.
//!
//! A caller may disconnect while the program is being started. A task per start would cost time on the
//! warm path, so an unfinished start moves into a task only when it is dropped. The task completes the start
//! and kills the program.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use boxwood_backend::{BoxFuture, Process, SpawnError, SpawnRequest};
use tokio::runtime::Handle;

use super::detach::DetachSignal;
use super::kill::KillOnDrop;
use crate::session::Session;

pub(crate) struct Spawning {
    start: Option<BoxFuture<'static, Result<Process, SpawnError>>>,
    detach: DetachSignal,
}

pub(crate) fn spawn(session: &Session, request: SpawnRequest) -> Spawning {
    let sandbox = Arc::clone(&session.sandbox);
    Spawning {
        start: Some(Box::pin(async move { sandbox.spawn(request).await })),
        detach: session.execs.detach_signal(),
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
        let detach = self.detach.clone();
        runtime.spawn(async move {
            if let Ok(process) = start.await {
                drop(KillOnDrop::new(process.control, detach));
            }
        });
    }
}
