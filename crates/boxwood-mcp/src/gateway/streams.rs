//! How many streams of news may be open, of one client and of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::refusal::{INTERNAL_ERROR, Refusal};

const MOST: usize = 512;
const MOST_OF_ONE: usize = 128;

#[derive(Clone, Default)]
pub(crate) struct Streams {
    open: Arc<Mutex<HashMap<Option<String>, usize>>>,
}

/// One that is open, until it is dropped.
pub(crate) struct Open {
    streams: Streams,
    principal: Option<String>,
}

impl Streams {
    pub(crate) fn open(&self, principal: Option<&str>) -> Result<Open, Refusal> {
        let mut open = self.lock();
        let all: usize = open.values().sum();
        let principal = principal.map(ToOwned::to_owned);
        let own = open.entry(principal.clone()).or_default();
        if all >= MOST || *own >= MOST_OF_ONE {
            let text = "too many streams of news are open; close some, one can tell of everything";
            return Err(Refusal::new(INTERNAL_ERROR, text));
        }
        *own += 1;
        drop(open);
        Ok(Open {
            streams: self.clone(),
            principal,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<String>, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.principal) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_streams() {
        let streams = Streams::default();
        let mut open = Vec::new();
        for _ in 0..MOST_OF_ONE {
            open.push(streams.open(Some("ann")).expect("room"));
        }
        assert!(streams.open(Some("ann")).is_err());
        open.push(streams.open(Some("bob")).expect("room for others"));
        open.remove(0);
        assert!(streams.open(Some("ann")).is_ok());
    }
}
