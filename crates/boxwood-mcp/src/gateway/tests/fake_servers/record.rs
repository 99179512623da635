//! Records what a fake server received, and injects faults into it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// Shared by all processes of one server.
#[derive(Clone, Default)]
pub(in crate::gateway) struct ServerRecord {
    heard: Arc<Mutex<Vec<String>>>,
    /// Delay of the handshake response.
    pub(in crate::gateway) greets_after: Arc<Mutex<Duration>>,
    /// Additional tools, set by a test.
    pub(in crate::gateway) more_tools: Arc<Mutex<Vec<Value>>>,
    /// A process and the method that it does not respond to.
    pub(in crate::gateway) unanswered: Arc<Mutex<Option<(&'static str, &'static str)>>>,
    /// Sends notifications continuously after the handshake.
    pub(in crate::gateway) is_chatty: Arc<AtomicBool>,
}

impl ServerRecord {
    pub(in crate::gateway) fn note(&self, line: String) {
        self.heard.lock().expect("lock").push(line);
    }

    pub(in crate::gateway) fn heard(&self, begins: &str) -> Vec<String> {
        let heard = self.heard.lock().expect("lock");
        let found = heard.iter().filter(|line| line.starts_with(begins));
        found.cloned().collect()
    }

    /// Waits until `count` matching lines were received.
    pub(in crate::gateway) async fn wait(&self, begins: &str, count: usize) -> Vec<String> {
        for _ in 0..500 {
            let heard = self.heard(begins);
            if heard.len() >= count {
                return heard;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "`{begins}` was not received {count} times: {:?}",
            self.heard("")
        );
    }
}
