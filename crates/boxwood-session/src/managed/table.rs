//! The managed processes of one session by id.
//!
//! Processes are started and replaced outside the lock. Meanwhile the slot is `Starting`, and other
//! starts wait or are refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use boxwood_api::{ProcessId, ProcessInfo};
use tokio::sync::watch;

use super::{Managed, Replace};
use crate::session::activity::lock;

/// Ended processes that are kept per session; the oldest are removed first.
const MAX_ENDED: usize = 32;

enum Slot {
    Starting {
        /// The process that is being replaced. It is still listed.
        previous: Option<Arc<Managed>>,
        /// Closed when the start is over.
        over: watch::Receiver<()>,
    },
    Live(Arc<Managed>),
}

impl Slot {
    fn managed(&self) -> Option<&Arc<Managed>> {
        match self {
            Self::Starting { previous, .. } => previous.as_ref(),
            Self::Live(managed) => Some(managed),
        }
    }

    fn is_running(&self) -> bool {
        match self {
            Self::Starting { .. } => true,
            Self::Live(managed) => managed.is_running(),
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct ProcessTable(Arc<Mutex<BTreeMap<ProcessId, Slot>>>);

/// The result of claiming an id.
pub(crate) enum Claim {
    /// The id is claimed. `previous` has to be stopped first.
    Granted {
        ticket: Ticket,
        previous: Option<Arc<Managed>>,
    },
    /// Another start is in progress: wait for it, then try again.
    Wait(watch::Receiver<()>),
    Refused,
}

/// The right to fill one slot. Dropping it frees the slot.
pub(crate) struct Ticket {
    table: ProcessTable,
    id: ProcessId,
    filled: bool,
    _over: watch::Sender<()>,
}

impl Ticket {
    pub(crate) fn fill(mut self, managed: Arc<Managed>) {
        self.filled = true;
        self.table.insert(managed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.filled {
            lock(&self.table.0).remove(&self.id);
        }
    }
}

fn forget_oldest(slots: &mut BTreeMap<ProcessId, Slot>) {
    let mut ended: Vec<_> = slots
        .iter()
        .filter_map(|(id, slot)| match slot {
            Slot::Live(managed) => managed.ended_at().map(|at| (at, id.clone())),
            Slot::Starting { .. } => None,
        })
        .collect();
    ended.sort();
    let too_many = ended.len().saturating_sub(MAX_ENDED);
    for (_, id) in ended.into_iter().take(too_many) {
        if let Some(Slot::Live(managed)) = slots.remove(&id) {
            managed.abandon();
        }
    }
}

impl ProcessTable {
    pub(crate) fn claim(&self, id: &ProcessId, replace: Replace) -> Claim {
        let mut slots = lock(&self.0);
        let previous = match (slots.get(id), replace) {
            (None, _) => None,
            (Some(slot), Replace::Refuse) if slot.is_running() => return Claim::Refused,
            (Some(Slot::Starting { over, .. }), _) => return Claim::Wait(over.clone()),
            (Some(Slot::Live(managed)), _) => Some(Arc::clone(managed)),
        };
        let (sender, over) = watch::channel(());
        slots.insert(
            id.clone(),
            Slot::Starting {
                previous: previous.clone(),
                over,
            },
        );
        Claim::Granted {
            ticket: Ticket {
                table: self.clone(),
                id: id.clone(),
                filled: false,
                _over: sender,
            },
            previous,
        }
    }

    pub(crate) fn insert(&self, managed: Arc<Managed>) {
        let mut slots = lock(&self.0);
        slots.insert(managed.id().clone(), Slot::Live(managed));
        forget_oldest(&mut slots);
    }

    pub(crate) fn get(&self, id: &ProcessId) -> Option<Arc<Managed>> {
        lock(&self.0).get(id).and_then(Slot::managed).cloned()
    }

    /// Removes a process. `Err` is a start in progress: wait for it, then try again.
    pub(crate) fn take(&self, id: &ProcessId) -> Result<Option<Arc<Managed>>, watch::Receiver<()>> {
        let mut slots = lock(&self.0);
        if let Some(Slot::Starting { over, .. }) = slots.get(id) {
            return Err(over.clone());
        }
        Ok(match slots.remove(id) {
            Some(Slot::Live(managed)) => Some(managed),
            Some(Slot::Starting { .. }) | None => None,
        })
    }

    /// All processes, including ended ones.
    pub(crate) fn all(&self) -> Vec<Arc<Managed>> {
        lock(&self.0)
            .values()
            .filter_map(Slot::managed)
            .cloned()
            .collect()
    }

    pub(crate) fn infos(&self) -> BTreeMap<ProcessId, ProcessInfo> {
        self.all()
            .iter()
            .map(|managed| (managed.id().clone(), managed.info()))
            .collect()
    }

    pub(crate) fn any_running(&self) -> bool {
        lock(&self.0).values().any(Slot::is_running)
    }

    pub(crate) fn running(&self) -> usize {
        lock(&self.0)
            .values()
            .filter_map(Slot::managed)
            .filter(|managed| managed.is_running())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ProcessId {
        ProcessId::default()
    }

    #[test]
    fn a_second_start_waits_or_is_refused() {
        let table = ProcessTable::default();
        let Claim::Granted { ticket, previous } = table.claim(&id(), Replace::Refuse) else {
            panic!("an empty table has room");
        };
        assert!(previous.is_none());
        assert!(matches!(
            table.claim(&id(), Replace::Refuse),
            Claim::Refused
        ));
        let Claim::Wait(over) = table.claim(&id(), Replace::Running) else {
            panic!("a replacement waits for the start");
        };
        assert!(table.any_running());
        drop(ticket);
        assert!(over.has_changed().is_err(), "the start is over");
        assert!(!table.any_running());
        assert!(matches!(
            table.claim(&id(), Replace::Refuse),
            Claim::Granted { .. }
        ));
    }
}
