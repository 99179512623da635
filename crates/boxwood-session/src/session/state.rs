//! The state of one session id.
//!
//! The registry holds these values under its lock and does slow work outside.

use std::sync::Arc;

use boxwood_policy::AdmittedSpec;
use tokio::sync::watch;

use crate::{Result, SessionError};

/// The result of a step that callers can wait for; `None` while it is in progress.
pub(crate) type Settled = watch::Receiver<Option<Result<()>>>;
pub(crate) type Settle = watch::Sender<Option<Result<()>>>;

pub(crate) enum SessionState<S> {
    Starting {
        spec: Arc<AdmittedSpec>,
        started: Settled,
        /// A delete that arrived during the start. The backend is not interrupted; the box is removed
        /// after the start.
        close_after: Option<String>,
    },
    Ready {
        session: S,
    },
    Closing {
        closed: Settled,
    },
}

/// What the caller of a close has to do.
pub(crate) enum Close<S> {
    /// The caller stops the box, then settles `closed` and frees the slot.
    Stop { session: S, closed: Settle },
    /// The start will remove the box. Wait for this, then check again.
    AfterStart(Settled),
    /// Another caller is removing it. Wait for this.
    UnderWay(Settled),
}

impl<S: Clone> SessionState<S> {
    /// Total: every state has an answer, and none of them drops a running box.
    pub(crate) fn close(&mut self, why: &str) -> Close<S> {
        match self {
            Self::Starting {
                started,
                close_after,
                ..
            } => {
                close_after.get_or_insert_with(|| why.to_owned());
                Close::AfterStart(started.clone())
            }
            Self::Ready { session } => {
                let session = session.clone();
                let (closed, waiting) = watch::channel(None);
                *self = Self::Closing { closed: waiting };
                Close::Stop { session, closed }
            }
            Self::Closing { closed } => Close::UnderWay(closed.clone()),
        }
    }

    /// The start has succeeded. Called once, by the starter. If the session was deleted meanwhile,
    /// returns why: the caller stops the box, then settles the result and frees the slot.
    pub(crate) fn started(&mut self, session: S) -> Option<(String, Settle)> {
        let why = match self {
            Self::Starting { close_after, .. } => close_after.take(),
            Self::Ready { .. } | Self::Closing { .. } => Some("superseded".to_owned()),
        };
        let Some(why) = why else {
            *self = Self::Ready { session };
            return None;
        };
        let (closed, waiting) = watch::channel(None);
        *self = Self::Closing { closed: waiting };
        Some((why, closed))
    }
}

/// Waits for a step. If its task has panicked, this is an error.
pub(crate) async fn settled(mut step: Settled) -> Result<()> {
    match step.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
        Err(_) => Err(SessionError::internal(
            "waiting for a start or a removal (its task panicked)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closing() -> (Settle, SessionState<u32>) {
        let (settle, closed) = watch::channel(None);
        (settle, SessionState::Closing { closed })
    }

    #[test]
    fn a_ready_session_is_closed_by_exactly_one_caller() {
        let mut slot = SessionState::Ready { session: 7 };
        let Close::Stop { session, .. } = slot.close("first") else {
            panic!("the first close stops the box");
        };
        assert_eq!(session, 7);
        assert!(matches!(slot.close("second"), Close::UnderWay(_)));
    }

    #[test]
    fn a_box_that_starts_in_a_closing_slot_is_stopped() {
        let (_settle, mut slot) = closing();
        assert!(slot.started(9).is_some());
        assert!(matches!(slot, SessionState::Closing { .. }));
    }

    #[tokio::test]
    async fn waiting_for_a_task_that_panicked_is_an_error() {
        let (settle, slot) = closing();
        drop(settle);
        let SessionState::Closing { closed } = slot else {
            panic!("made so");
        };
        assert!(matches!(
            settled(closed).await,
            Err(SessionError::Internal { .. })
        ));
    }
}
