//! What a test may see of a little server, and how it may spoil it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// What all processes of one server have in common.
#[derive(Clone, Default)]
pub(in crate::gateway) struct Facts {
    heard: Arc<Mutex<Vec<String>>>,
    /// It takes its time to greet.
    pub(in crate::gateway) greets_after: Arc<Mutex<Duration>>,
    /// Further tools, which anybody may add.
    pub(in crate::gateway) more_tools: Arc<Mutex<Vec<Value>>>,
    /// A process, and the method that it never answers.
    pub(in crate::gateway) unanswered: Arc<Mutex<Option<(&'static str, &'static str)>>>,
    /// Says something all the time once it was greeted.
    pub(in crate::gateway) is_chatty: Arc<AtomicBool>,
}

impl Facts {
    pub(in crate::gateway) fn note(&self, line: String) {
        self.heard.lock().expect("lock").push(line);
    }

    pub(in crate::gateway) fn heard(&self, begins: &str) -> Vec<String> {
        let heard = self.heard.lock().expect("lock");
        let found = heard.iter().filter(|line| line.starts_with(begins));
        found.cloned().collect()
    }

    /// Waits until so many such lines were heard.
    pub(in crate::gateway) async fn wait(&self, begins: &str, count: usize) -> Vec<String> {
        for _ in 0..500 {
            let heard = self.heard(begins);
            if heard.len() >= count {
                return heard;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "`{begins}` was not heard {count} times: {:?}",
            self.heard("")
        );
    }
}
