//! A client that can be asked, on a server whose questions stand in its results.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::behind::{Behind, House};
use super::params;
use super::questions::CANCELLED;
use super::session::Session;
use super::upstream::Upstream;
use crate::wire::{Kind, Message};

pub(crate) struct Bridged {
    upstream: Upstream,
    _asking: AbortOnDropHandle<()>,
}

impl Bridged {
    pub(crate) fn begin(
        session: &Arc<Session>,
        house: &Arc<dyn House>,
        behind: &dyn Behind,
        initialize: &RawValue,
    ) -> Self {
        let (upstream, asked) = Upstream::bridged(house, behind, initialize);
        Self::over(session, upstream, asked)
    }

    /// Carries to the client what is asked of it.
    pub(crate) fn over(
        session: &Arc<Session>,
        upstream: Upstream,
        mut asked: mpsc::Receiver<Message>,
    ) -> Self {
        let session = Arc::downgrade(session);
        let answering = upstream.clone();
        // For all servers of the client's: here nothing waits for any of them.
        let asking = tokio::spawn(async move {
            while let Some(question) = asked.recv().await {
                let Some(session) = session.upgrade() else {
                    return;
                };
                if question.kind() != Kind::Request {
                    let is_open = || {
                        let id = params::get(question.params(), "requestId");
                        id.is_some_and(|id| session.questions.settle(&id))
                    };
                    if question.method() != Some(CANCELLED) || is_open() {
                        session.tell(&question);
                    }
                    continue;
                }
                if session.ask(&question) {
                    continue;
                }
                let id = question.id().map(ToOwned::to_owned);
                let text = "the client has too many open questions";
                let refused = Message::failure(id, -32000, text, None);
                answering.respond_now(refused);
            }
        });
        Self {
            upstream,
            _asking: AbortOnDropHandle::new(asking),
        }
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }
}
