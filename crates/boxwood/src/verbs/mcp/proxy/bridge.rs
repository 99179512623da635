//! Both sides of the bridge: what goes to the gateway, and what is said to the client.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boxwood_client::{Client, ClientError, GatewayAnswer, GatewayHeaders};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::mirrored::Marks;
use super::open::Open;
use super::peek::Peek;
use super::replies;
use super::session::{NoSession, Session};
use super::wishes::Wishes;

/// Requests that may be under way; further ones wait to be read.
const MAX_REQUESTS: usize = 256;
/// To say goodbye to the gateway.
const GOODBYE: Duration = Duration::from_secs(2);
/// How often `finish` looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Bridge {
    pub(super) client: Client,
    pub(super) server: String,
    out: mpsc::Sender<String>,
    session: Mutex<Session>,
    pub(super) renewing: tokio::sync::Mutex<()>,
    /// Requests and batches under way, and some that have ended since the last one began.
    under_way: Mutex<Vec<UnderWay>>,
    listener: Mutex<Option<AbortHandle>>,
    room: Arc<Semaphore>,
    pub(super) marks: Marks,
    pub(super) wishes: Wishes,
}

#[derive(Clone)]
struct UnderWay {
    task: AbortHandle,
    open: Arc<Open>,
    /// Whether it ends by itself.
    is_endless: bool,
    is_stateless: bool,
}

fn locked<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    pub(super) fn new(client: Client, server: String, out: mpsc::Sender<String>) -> Self {
        Self {
            client,
            server,
            out,
            session: Mutex::default(),
            renewing: tokio::sync::Mutex::new(()),
            under_way: Mutex::default(),
            listener: Mutex::default(),
            room: Arc::new(Semaphore::new(MAX_REQUESTS)),
            marks: Marks::default(),
            wishes: Wishes::default(),
        }
    }

    pub(super) fn session(&self) -> Session {
        locked(&self.session).clone()
    }

    pub(super) fn set_session(&self, change: impl FnOnce(&Session) -> Session) {
        let mut session = locked(&self.session);
        *session = change(&session);
    }

    /// To the client. When it has gone, so has the reason to say anything.
    pub(super) async fn say(&self, line: String) {
        let _ = self.out.send(line).await;
    }

    /// One line of the client's. Answers once the next may be read.
    pub(super) async fn take(bridge: &Arc<Self>, line: Vec<u8>) {
        let Some(peek) = Peek::at(&line) else {
            let reply = replies::error(
                None,
                replies::PARSE_ERROR,
                "this line is no JSON-RPC message",
                &serde_json::Value::Null,
            );
            return bridge.say(reply).await;
        };
        let line = Bytes::from(line);
        if peek.is("initialize") && peek.id.is_some() && peek.revision.is_none() {
            // Everything else needs the session that this one begins.
            if let Err(why) = bridge.greet(&peek, &line).await {
                bridge.say(no_session(peek.id.as_deref(), &why)).await;
            }
        } else if peek.is_request() {
            Self::ask(bridge, peek, line).await;
        } else {
            Self::tell(bridge, &peek, line).await;
        }
    }

    /// Requests go on beside each other.
    async fn ask(bridge: &Arc<Self>, peek: Peek, line: Bytes) {
        let Ok(room) = Arc::clone(&bridge.room).acquire_owned().await else {
            return;
        };
        let open = Arc::new(Open::new(peek.asks.clone()));
        let entry = UnderWay {
            is_endless: peek.is("subscriptions/listen"),
            is_stateless: peek.revision.is_some(),
            task: {
                let (bridge, open) = (Arc::clone(bridge), Arc::clone(&open));
                let task = tokio::spawn(async move {
                    bridge.exchange(&peek, &line, &open).await;
                    drop(room);
                });
                task.abort_handle()
            },
            open,
        };
        let mut under_way = locked(&bridge.under_way);
        under_way.retain(|other| !other.task.is_finished());
        under_way.push(entry);
    }

    /// What the request with this id is part of, or is itself. It is not waited for any more.
    fn give_up(&self, id: &str) -> Option<UnderWay> {
        let under_way = locked(&self.under_way);
        let mut going_on = under_way.iter().filter(|it| !it.task.is_finished());
        going_on.find(|it| it.open.close(id)).cloned()
    }

    /// Notifications and answers keep their order.
    async fn tell(bridge: &Arc<Self>, peek: &Peek, line: Bytes) {
        if let Some(id) = &peek.cancels {
            let cancelled = bridge.give_up(id);
            let is_stateless = cancelled.as_ref().is_some_and(|it| it.is_stateless);
            // There, an answer that nobody reads any more is what says it.
            if !is_stateless {
                bridge.notify(peek, line).await;
            }
            // A batch goes on with what else is in it.
            if let Some(cancelled) = cancelled.filter(|it| it.open.is_empty()) {
                cancelled.task.abort();
            }
            return;
        }
        bridge.notify(peek, line).await;
        if peek.is("notifications/initialized") && bridge.session().id.is_some() {
            let listener = tokio::spawn({
                let bridge = Arc::clone(bridge);
                async move { bridge.listen().await }
            });
            let before = locked(&bridge.listener).replace(listener.abort_handle());
            if let Some(before) = before {
                before.abort();
            }
        }
    }

    async fn notify(&self, peek: &Peek, line: Bytes) {
        let mut is_second = false;
        loop {
            let session = self.session();
            let headers = self.headers(peek, &line, &session);
            let what = peek.what();
            match self.post(&headers, line.clone(), false).await {
                Ok(GatewayAnswer::Refused { status: 404, .. })
                    if session.id.is_some() && !is_second =>
                {
                    is_second = true;
                    if self.renew(session.generation).await.is_ok() {
                        continue;
                    }
                    eprintln!("boxwood: `{what}` was not delivered: the session is gone");
                }
                Ok(GatewayAnswer::Refused { status, .. }) => {
                    eprintln!("boxwood: `{what}` was refused with HTTP status {status}");
                }
                Err(error) => eprintln!("boxwood: `{what}` was not delivered: {error}"),
                Ok(_) => {}
            }
            return;
        }
    }

    /// What goes with a message: the session's headers, or what the stateless era repeats of the body.
    pub(super) fn headers(&self, peek: &Peek, line: &[u8], session: &Session) -> GatewayHeaders {
        match &peek.revision {
            None => session.headers(),
            Some(revision) => self.marks.headers(peek, line, revision),
        }
    }

    /// A daemon that is not there may be restarting. One that was lost may have heard us, so only what
    /// can be said twice is.
    pub(super) async fn post(
        &self,
        headers: &GatewayHeaders,
        line: Bytes,
        is_repeatable: bool,
    ) -> Result<GatewayAnswer, ClientError> {
        let ask = || async {
            let answer = self
                .client
                .gateway_post(&self.server, headers, line.clone());
            match answer.await {
                Err(error @ ClientError::Lost { .. }) if !is_repeatable => Ok(Err(error)),
                Err(error) => Err(error),
                Ok(answer) => Ok(Ok(answer)),
            }
        };
        self.client.patiently(ask).await?
    }

    /// Waits for what is under way and ends by itself.
    pub(super) async fn finish(&self) {
        while locked(&self.under_way)
            .iter()
            .any(|it| !it.is_endless && !it.task.is_finished())
        {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(super) async fn leave(&self) {
        for request in locked(&self.under_way).drain(..) {
            request.task.abort();
        }
        if let Some(listener) = locked(&self.listener).take() {
            listener.abort();
        }
        let session = self.session();
        if session.id.is_some() {
            let goodbye = session.headers();
            let goodbye = self.client.gateway_leave(&self.server, &goodbye);
            // The gateway forgets idle sessions by itself.
            let _ = tokio::time::timeout(GOODBYE, goodbye).await;
        }
    }
}

pub(super) fn no_session(id: Option<&str>, why: &NoSession) -> String {
    match why {
        NoSession::Lost(error) => replies::unreachable(id, error),
        NoSession::Refused { status, body } => replies::refusal(id, *status, body),
        NoSession::BrokenOff => replies::broken_off(id, "initialize"),
    }
}
