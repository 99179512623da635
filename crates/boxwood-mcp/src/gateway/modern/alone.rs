//! A server of the era before on a process of one client's, for what others must not hear or answer.
//!
//! Comes in: a request of a client that may be asked something. Goes out: the server's answer, or why the
//! shared process is asked instead. Never here: which requests need it.

use std::sync::Arc;

use tokio::time::timeout;

use super::{LISTING, Request};
use crate::gateway::behind::Behind;
use crate::gateway::refusal::Refusal;
use crate::gateway::rounds::{self, Call};
use crate::gateway::translate;
use crate::gateway::upstream::{instead, seen};
use crate::gateway::waiting::{Claim, Resumed};
use crate::hosting::HostingError;
use crate::wire::{CallError, Message, Object};

impl Request {
    /// On a process of this client's, for what no server has questions about.
    pub(super) async fn listed_alone(
        &self,
        behind: &Arc<dyn Behind>,
        method: &str,
        params: &Object,
    ) -> Result<Message, Alone> {
        let principal = self.principal.as_deref();
        let seat = self
            .inner
            .seats
            .take(behind.as_ref(), principal, &self.asked);
        let seat = self.inner.seats.borrowed(seat.await?);
        let request = instead(
            &self.asked.request,
            method,
            translate::legacy_params(params),
        );
        let answering = seat.connection().relay(request, self.how(method));
        let Ok(answer) = timeout(LISTING, answering).await else {
            // It may wait for an answer to a question of its own, which nobody hears here.
            seat.discard();
            return Err(Alone::Late);
        };
        let answer = answer.map_err(|error| Refusal::unanswered(&error, behind.name()))?;
        let answer = seen(behind.as_ref(), method, answer);
        let greeting = seat.greeting();
        Ok(translate::modern_answer(
            method,
            answer,
            &greeting,
            &self.asked.capabilities,
        )?)
    }

    /// On a process of this client's.
    pub(super) async fn alone(
        &self,
        behind: &Arc<dyn Behind>,
        method: &str,
        params: &Object,
    ) -> Result<Message, Alone> {
        let inner = &self.inner;
        let principal = self.principal.as_deref();
        let claim = Claim::new(behind.name(), principal, method, params);
        let call = if params.get("requestState").is_some() {
            match inner.waiting.resume(&claim, &self.asked, params).await? {
                Resumed::Goes(call) => *call,
                Resumed::AsksAgain(answer) => return Ok(answer),
            }
        } else {
            let seat = inner
                .seats
                .take(behind.as_ref(), principal, &self.asked)
                .await?;
            {
                let params = translate::legacy_params(params);
                let request = instead(&self.asked.request, method, params);
                let longest = inner.longest_call;
                Call::begin(&inner.seats, seat, &self.asked, request, longest).await
            }
        };
        match rounds::run(call, &self.news).await {
            Err(call) => Ok(inner.waiting.put(claim, *call)?),
            Ok((answer, call)) => {
                let greeting = match answer {
                    // It may hang: the next call gets another.
                    Err(CallError::TimedOut { .. }) => call.discard(),
                    _ => call.end().await,
                };
                let greeting = greeting.unwrap_or_else(|| behind.greeting());
                let answer = answer.map_err(|error| Refusal::unanswered(&error, behind.name()))?;
                Ok(translate::modern_answer(
                    method,
                    answer,
                    &greeting,
                    &self.asked.capabilities,
                )?)
            }
        }
    }
}

/// Why a call does not go to a process of its client's.
pub(crate) enum Alone {
    /// There are too many such processes; the shared one asks nothing.
    Full,
    /// It did not say in time what the shared one says too.
    Late,
    Refused(Refusal),
}

impl From<Refusal> for Alone {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<HostingError> for Alone {
    fn from(error: HostingError) -> Self {
        match error {
            HostingError::Full { .. } => Self::Full,
            error => Self::Refused(Refusal::from(&error)),
        }
    }
}
