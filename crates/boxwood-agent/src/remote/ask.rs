//! One request, asked again where the connection broke and nothing can have happened twice.

use std::future::Future;
use std::time::Duration;

use boxwood_client::{Client, ClientError};
use tokio::time::{Instant, sleep, timeout_at};

use super::Remote;
use super::failure;
use crate::boxes::Answer;

/// A connection that breaks every time it is used is not mended by using it again.
const MOST_TRIES: u32 = 4;

/// Before a request is sent again over a connection that seems to be there.
const BREATH: Duration = Duration::from_millis(100);

/// A runtime that has not answered for so long is looked at.
const UNANSWERED: Duration = Duration::from_secs(5);

/// Whether a request may be carried out twice.
#[derive(Clone, Copy)]
pub(super) enum Repeat {
    /// It changes nothing, or nothing more.
    Always,
    /// Only when nothing of it was sent. The text says what is not known otherwise.
    Unsent(&'static str),
}

impl Remote {
    pub(super) async fn ask<T, F>(
        &self,
        within: Duration,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (answer, _) = self.ask_on(within, repeat, request).await?;
        Ok(answer)
    }

    /// The same, with the number of the connection that brought the answer.
    pub(super) async fn ask_on<T, F>(
        &self,
        within: Duration,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Answer<(T, u64)>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let _call = self.reach.begin_call();
        let deadline = Instant::now() + within;
        let mut line = self.reach.line(deadline).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let broken = async {
                match repeat {
                    Repeat::Always => self.broken(line.generation).await,
                    // An answer may still come, and nobody else has it.
                    Repeat::Unsent(_) => std::future::pending().await,
                }
            };
            let asked = tokio::select! {
                // First, because an answer is an answer.
                biased;
                asked = timeout_at(deadline, request(line.client.clone())) => asked,
                () = broken => Ok(Err(lost())),
            };
            let error = match asked {
                Ok(Ok(answer)) => return Ok((answer, line.generation)),
                Ok(Err(error)) => error,
                Err(_) => return Err(failure::late(within)),
            };
            if !error.is_of_connection() || !self.reach.is_kept() || tries >= MOST_TRIES {
                return Err(failure::of(error));
            }
            line = if matches!(error, ClientError::Unreachable { .. }) {
                // Nothing has begun, so this is a call to a runtime that is not there.
                self.reach.suspect().await;
                self.reach.line(deadline).await?
            } else {
                self.reach.next_line(deadline).await?
            };
            if let (ClientError::Lost { .. }, Repeat::Unsent(what)) = (&error, repeat) {
                return Err(failure::in_doubt(what));
            }
            sleep(BREATH * tries).await;
        }
    }
}

impl Remote {
    /// Waits until the connection is known to be lost, and asks whether it is when that takes long.
    async fn broken(&self, generation: u64) {
        let asking = async {
            sleep(UNANSWERED).await;
            self.reach.suspect().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.reach.broken(generation) => {}
            () = asking => {}
        }
    }
}

fn lost() -> ClientError {
    ClientError::Lost {
        operation: "a request".to_owned(),
        source: "the box runtime does not answer any more".into(),
    }
}
