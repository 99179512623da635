//! Calls that wait for their clients to find something out.
//!
//! Comes in: a call whose server has asked something. Goes out: the same call once its client comes back.
//! It waits under a name that nobody can guess, for its own client and a short time only; then it is
//! cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::McpServerName;
use tokio::time::Instant;

use super::envelope::Asked;
use super::json::{digest_of, is_object, object};
use super::refusal::{INTERNAL_ERROR, INVALID_PARAMS, Refusal};
use super::rounds::Call;
use super::sweeping::{Swept, sweep};
use crate::wire::{Message, Object};

/// For the client to find an answer.
const WAITING: Duration = Duration::from_mins(5);
const MOST_WAITING: usize = 256;
const MOST_OF_ONE: usize = 32;

/// Which call a client may go on with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    server: McpServerName,
    principal: Option<String>,
    method: String,
    params: [u8; 32],
}

impl Claim {
    pub(crate) fn new(
        server: &McpServerName,
        principal: Option<&str>,
        method: &str,
        params: &Object,
    ) -> Self {
        let said = ["name", "uri", "arguments"].map(|key| params.get(key));
        Self {
            server: server.clone(),
            principal: principal.map(ToOwned::to_owned),
            method: method.to_owned(),
            params: digest_of(&said),
        }
    }
}

/// Calls that wait for their client.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: HashMap<String, Waits>,
    is_swept: bool,
    is_closed: bool,
}

struct Waits {
    claim: Claim,
    call: Call,
    until: Instant,
}

impl Swept for State {
    type Gone = Vec<Waits>;

    fn sweep(&mut self, now: Instant) -> (Vec<Waits>, Option<Instant>) {
        let late = self.calls.extract_if(|_, waits| waits.until <= now);
        let late = late.map(|(_, waits)| waits).collect();
        let next = self.calls.values().map(|waits| waits.until).min();
        self.is_swept = next.is_some();
        (late, next)
    }
}

impl Waiting {
    /// The answer that sends the client off to find out.
    pub(crate) fn put(&self, claim: Claim, call: Call) -> Result<Message, Refusal> {
        self.put_until(claim, call, Instant::now() + WAITING)
    }

    fn put_until(&self, claim: Claim, call: Call, until: Instant) -> Result<Message, Refusal> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|_| Refusal::new(INTERNAL_ERROR, "no random numbers can be had"))?;
        let name = bytes
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let answer = call.input_required(&name);
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return Err(Refusal::new(INTERNAL_ERROR, "the daemon stops"));
        }
        let of_one = state
            .calls
            .values()
            .filter(|other| other.claim.principal == claim.principal);
        if state.calls.len() >= MOST_WAITING || of_one.count() >= MOST_OF_ONE {
            drop(state);
            return Err(Refusal::new(
                INTERNAL_ERROR,
                "too many calls wait for answers of their clients; answer some, or try again in five minutes",
            ));
        }
        let waits = Waits { claim, call, until };
        state.calls.insert(name, waits);
        let is_swept = std::mem::replace(&mut state.is_swept, true);
        drop(state);
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(&self.state)));
        }
        Ok(answer)
    }

    /// Cancels all of them.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        drop(calls);
    }

    /// The call that goes on, with its answers given. `state` is good once.
    pub(crate) async fn resume(
        &self,
        claim: &Claim,
        asked: &Asked,
        params: &Object,
    ) -> Result<Resumed, Refusal> {
        let unknown = || {
            let text =
                "`requestState` belongs to no call of yours that waits; call anew without it";
            Refusal::new(INVALID_PARAMS, text)
        };
        let state = params.text("requestState").ok_or_else(unknown)?;
        let answers = answers(params)?;
        let Waits {
            mut call, until, ..
        } = {
            let calls = &mut self.lock().calls;
            if calls.get(&state).is_none_or(|waits| waits.claim != *claim) {
                return Err(unknown());
            }
            calls.remove(&state).ok_or_else(unknown)?
        };
        let count = call.answered(asked, &answers).await;
        if !call.has_questions() {
            return Ok(Resumed::Goes(Box::new(call)));
        }
        // Only an answer gives it more time: nobody keeps a call by asking for it again.
        let until = match count {
            0 if until <= Instant::now() => return Err(unknown()),
            0 => until,
            _ => Instant::now() + WAITING,
        };
        self.put_until(claim.clone(), call, until)
            .map(Resumed::AsksAgain)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) enum Resumed {
    Goes(Box<Call>),
    /// Not everything was answered.
    AsksAgain(Message),
}

fn answers(params: &Object) -> Result<Object, Refusal> {
    let wrong = |text: &str| Refusal::new(INVALID_PARAMS, text);
    let Some(answers) = params.get("inputResponses") else {
        return Ok(Object::default());
    };
    let answers = object(answers).ok_or_else(|| wrong("`inputResponses` must be an object"))?;
    if answers.iter().any(|(_, answer)| !is_object(answer)) {
        return Err(wrong(
            "each of `inputResponses` must be an object, the result of what was asked",
        ));
    }
    Ok(answers)
}
