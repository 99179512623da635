//! What happens in the daemon, as it happens.

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
    /// The next event; `None` when the daemon goes. Events of a kind this version does not know are
    /// passed over: a newer daemon may have more of them.
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
    /// Watches all sessions from now on.
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
