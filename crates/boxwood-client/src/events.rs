//! Events of the daemon.

use boxwood_api::Event;
use hyper::Method;

use crate::call::{empty, operation};
use crate::path::Target;
use crate::sse::SseBody;
use crate::{Client, ClientError};

pub struct EventStream {
    body: SseBody,
}

impl EventStream {
    /// The next event; `None` when the daemon stops. Unknown events of newer daemons are skipped.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(message) = self.body.next().await? {
            if let Ok(event) = serde_json::from_str(&message.data) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Subscribes to events of all sessions.
    pub async fn events(&self) -> Result<EventStream, ClientError> {
        let target = Target::new("/v1/events");
        let response = self
            .send(Method::GET, &target, empty(), None, "text/event-stream")
            .await?;
        Ok(EventStream {
            body: SseBody::new(operation(&Method::GET, &target), response.into_body()),
        })
    }
}
