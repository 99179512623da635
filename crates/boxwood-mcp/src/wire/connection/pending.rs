//! Calls without a response.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::lock;
use crate::wire::error::{CallError, CloseReason};
use crate::wire::message::Message;

pub(crate) type ResponseSender = oneshot::Sender<Result<Message, CallError>>;

pub(crate) struct Call {
    pub(crate) method: Box<str>,
    pub(crate) response: ResponseSender,
    pub(crate) events: Events,
    pub(crate) began: Instant,
    /// Only written requests are cancelled.
    pub(crate) is_written: bool,
}

/// Receiver of progress and subscription events of a call.
#[derive(Clone, Default)]
pub(crate) struct Events {
    pub(crate) to: Option<mpsc::Sender<Message>>,
    pub(crate) token: Option<Box<RawValue>>,
    pub(crate) caller: Option<Box<RawValue>>,
}

pub(crate) struct Pending {
    max_calls: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: HashMap<u64, Call>,
    ended: Option<CloseReason>,
}

impl Pending {
    pub(crate) fn new(max_calls: usize) -> Self {
        Self {
            max_calls,
            state: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, id: u64, call: Call) -> Result<(), CallError> {
        let mut state = lock(&self.state);
        if let Some(ended) = &state.ended {
            return Err(CallError::Closed(ended.clone()));
        }
        if state.calls.len() >= self.max_calls {
            return Err(CallError::Busy {
                most: self.max_calls,
            });
        }
        state.calls.insert(id, call);
        Ok(())
    }

    pub(crate) fn take(&self, id: u64) -> Option<Call> {
        lock(&self.state).calls.remove(&id)
    }

    /// Returns false if the call was cancelled.
    pub(crate) fn mark_written(&self, id: u64) -> bool {
        let mut state = lock(&self.state);
        let call = state.calls.get_mut(&id);
        call.map(|call| call.is_written = true).is_some()
    }

    pub(crate) fn events(&self, id: u64) -> Option<Events> {
        lock(&self.state)
            .calls
            .get(&id)
            .map(|call| call.events.clone())
    }

    /// Fails all calls and refuses new ones.
    pub(crate) fn end(&self, reason: &CloseReason) {
        let calls = {
            let mut state = lock(&self.state);
            state.ended.get_or_insert_with(|| reason.clone());
            std::mem::take(&mut state.calls)
        };
        for call in calls.into_values() {
            // The caller may no longer be waiting.
            let _ = call.response.send(Err(CallError::Closed(reason.clone())));
        }
    }
}
