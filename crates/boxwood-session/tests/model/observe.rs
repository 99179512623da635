//! Compares sessions, ledger and boxes with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use boxwood_api::ProcessStatus;
use boxwood_test_support::FakeHost;

use crate::daemon::Daemon;
use crate::model::{Model, Process, Session, Sessions, State};
use crate::perform::memory_mb;

/// Time limit for background changes.
const SOON: Duration = Duration::from_secs(10);

fn number(name: &str) -> u8 {
    name[1..].parse().expect("the test's own name")
}

pub(crate) fn sessions(daemon: &Daemon) -> Sessions {
    let mut observed = BTreeMap::new();
    for info in daemon.sessions.list() {
        let kind = (0..=1).find(|kind| memory_mb(*kind) == info.memory_mb);
        let mut processes = BTreeMap::new();
        // It may have gone since it was listed.
        for found in daemon
            .sessions
            .processes(&info.session_id)
            .unwrap_or_default()
        {
            let state = match found.status {
                ProcessStatus::Running => State::Running,
                ProcessStatus::Exited => State::Ended(found.exit_code),
            };
            let started_at = found.started_at;
            let process = Process { state, started_at };
            processes.insert(number(found.process_id.as_str()), process);
        }
        let session = Session {
            incarnation: info.incarnation,
            kind: kind.expect("one of the test's"),
            processes,
        };
        observed.insert(number(info.session_id.as_str()), session);
    }
    observed
}

/// Waits until ledger, host and daemon agree with the model. Returns the difference after `SOON`.
pub(crate) fn compare(
    daemon: &mut Daemon,
    host: &Arc<FakeHost>,
    model: &Model,
) -> Result<(), String> {
    let until = Instant::now() + SOON;
    loop {
        let found = difference(daemon, host, model);
        match found {
            None => return Ok(()),
            Some(difference) if Instant::now() > until => return Err(difference),
            Some(_) => daemon.run("settling", async {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                std::thread::sleep(Duration::from_micros(200));
            }),
        }
    }
}

fn difference(daemon: &mut Daemon, host: &Arc<FakeHost>, model: &Model) -> Option<String> {
    let observed = sessions(daemon);
    if observed != model.sessions {
        let message = "sessions differ from the model";
        return Some(format!(
            "{message}\nseen:  {observed:#?}\nmodel: {:#?}",
            model.sessions
        ));
    }
    let boxes: BTreeSet<_> = host
        .boxes()
        .iter()
        .map(|found| (found.session().to_string(), found.handle()))
        .collect();
    if boxes.len() != observed.len() {
        return Some(format!("{} sessions have {boxes:#?}", observed.len()));
    }
    let ledger = daemon.ledger.clone();
    let rows = daemon.run("reading the ledger", async move { ledger.rows().await });
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return Some(format!("the ledger cannot be read: {error}")),
    };
    let written: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row.session.to_string(), row.incarnation))
        .collect();
    let expected: BTreeMap<_, _> = observed
        .iter()
        .map(|(session, found)| (format!("s{session}"), found.incarnation))
        .collect();
    if written != expected || rows.len() != expected.len() {
        return Some(format!(
            "the ledger has {written:?} instead of {expected:?}"
        ));
    }
    let written: BTreeSet<_> = rows
        .into_iter()
        .map(|row| {
            let handle = boxwood_backend::BoxHandle {
                backend: row.backend,
                name: row.name,
                socket: row.socket,
            };
            (row.session.to_string(), handle)
        })
        .collect();
    if written != boxes {
        return Some(format!(
            "the ledger has {written:#?}, and there are {boxes:#?}"
        ));
    }
    programs(host, &observed)
}

/// Each box has exactly the programs of its session's processes.
fn programs(host: &Arc<FakeHost>, observed: &Sessions) -> Option<String> {
    for found in host.boxes() {
        let session = number(found.session().as_str());
        let known = observed
            .get(&session)
            .map_or(0, |session| session.processes.len());
        let running = found.programs();
        if running != known {
            return Some(format!(
                "session {session} knows {known} processes, and its box has {running}"
            ));
        }
    }
    None
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("proc is there");
    open.count()
}
