//! What the server says unasked, for as long as there is a session.

use std::time::Duration;

use boxwood_client::GatewayAnswer;

use super::bridge::Bridge;
use super::replies::one_line;

const LAST_EVENT: &str = "last-event-id";
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The gateway has no such stream.
const NOT_THERE: u16 = 405;

impl Bridge {
    /// Ends only where there is nothing to hear.
    pub(super) async fn listen(&self) {
        let mut pause = FIRST_PAUSE;
        let mut last: Option<String> = None;
        let mut generation = self.session().generation;
        loop {
            let session = self.session();
            // Somebody else may have begun a new one, whose events are counted from the beginning.
            if session.generation != generation {
                generation = session.generation;
                last = None;
            }
            let mut headers = session.headers();
            headers.extend(last.clone().map(|last| (LAST_EVENT.to_owned(), last)));
            match self.client.gateway_listen(&self.server, &headers).await {
                Ok(GatewayAnswer::Stream { mut events, .. }) => {
                    pause = FIRST_PAUSE;
                    while let Ok(Some(event)) = events.next().await {
                        last = event.id.or(last);
                        if !event.data.is_empty() {
                            self.say(one_line(&event.data)).await;
                        }
                    }
                    pause = events.retry().unwrap_or(pause).min(LONGEST_PAUSE);
                }
                Ok(GatewayAnswer::Refused { status, .. }) if status == NOT_THERE => return,
                Ok(GatewayAnswer::Refused { status: 404, .. }) => {
                    if self.renew(session.generation).await.is_err() {
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
                // The stream never had that event: from its beginning, then.
                Ok(GatewayAnswer::Refused { status: 400, .. }) if last.is_some() => last = None,
                // A daemon that is gone may come back, and another stream of ours may still be open.
                Ok(_) | Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
            tokio::time::sleep(pause).await;
        }
    }
}
