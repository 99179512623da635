//! Records what a fake server received, and injects faults into it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// Shared by all processes of one server.
#[derive(Clone, Default)]
pub(in crate::gateway) struct ServerRecord {
    received: Arc<Mutex<Vec<String>>>,
    /// Delay of the handshake response.
    pub(in crate::gateway) initialize_delay: Arc<Mutex<Duration>>,
    /// Additional tools, set by a test.
    pub(in crate::gateway) more_tools: Arc<Mutex<Vec<Value>>>,
    /// A process and the method that it does not respond to.
    pub(in crate::gateway) unanswered: Arc<Mutex<Option<(&'static str, &'static str)>>>,
    /// Sends notifications continuously after the handshake.
    pub(in crate::gateway) is_chatty: Arc<AtomicBool>,
}

impl ServerRecord {
    pub(in crate::gateway) fn add(&self, line: String) {
        self.received.lock().expect("lock").push(line);
    }

    pub(in crate::gateway) fn received(&self, prefix: &str) -> Vec<String> {
        let received = self.received.lock().expect("lock");
        let found = received.iter().filter(|line| line.starts_with(prefix));
        found.cloned().collect()
    }

    /// Waits until `count` matching lines were received.
    pub(in crate::gateway) async fn wait(&self, prefix: &str, count: usize) -> Vec<String> {
        for _ in 0..500 {
            let received = self.received(prefix);
            if received.len() >= count {
                return received;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "`{prefix}` was not received {count} times: {:?}",
            self.received("")
        );
    }
}
