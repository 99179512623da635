//! Events of the daemon.

use boxwood_api::Event;
use hyper::Method;

use crate::http::EVENTS;
use crate::http::sse::SseBody;
use crate::http::target::Target;
use crate::{Client, Result};

pub struct EventStream(SseBody);

impl EventStream {
    /// The next event; `None` when the daemon stops. Unknown events of newer daemons are skipped.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while let Some(message) = self.0.next().await? {
            if let Ok(event) = serde_json::from_str(&message.data) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Subscribes to events of all sessions.
    pub async fn events(&self) -> Result<EventStream> {
        let call = self.call(Method::GET, &Target::new("/v1/events"));
        Ok(EventStream(SseBody::new(call.accept(EVENTS).send().await?)))
    }
}
