//! What a request, or a batch of them, still waits for.

use std::sync::{Mutex, PoisonError};

/// Ids as they are written. One that stands in a batch twice is answered twice.
pub(super) struct Open(Mutex<Vec<String>>);

impl Open {
    pub(super) fn new(ids: Vec<String>) -> Self {
        Self(Mutex::new(ids))
    }

    /// It is answered, or nobody wants it any more. Says whether it was open.
    pub(super) fn close(&self, id: &str) -> bool {
        let mut ids = self.locked();
        let Some(at) = ids.iter().position(|open| open == id) else {
            return false;
        };
        ids.swap_remove(at);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked().is_empty()
    }

    /// One reply to each of them.
    pub(super) fn replies(&self, reply: impl Fn(&str) -> String) -> Vec<String> {
        self.locked().iter().map(|id| reply(id)).collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_closed_once() {
        let open = Open::new(["1", "\"1\"", "1"].map(str::to_owned).to_vec());
        assert!(open.close("1") && open.close("\"1\"") && !open.close("\"1\""));
        assert_eq!(open.replies(str::to_owned), ["1"]);
        assert!(!open.is_empty());
        assert!(open.close("1") && open.is_empty());
    }
}
