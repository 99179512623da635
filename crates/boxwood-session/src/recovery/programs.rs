//! Adopts the programs of a box that an earlier daemon created.
//!
//! A program whose description cannot be read is killed: no client could reach it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::ProcessSpec;
use boxwood_backend::{KeptProcess, Process};
use jiff::Timestamp;

use crate::exec::{captured, streamed};
use crate::managed::{self, Managed, Start};
use crate::program::{BootTime, ExecNote, Fact, Files, KillOnDrop, KindNote, Note, invalid_data};
use crate::session::registry::Registry;
use crate::session::{ExecRecord, Lease, Session};

pub(crate) fn adopt(registry: &Arc<Registry>, session: &Arc<Session>, programs: Vec<KeptProcess>) {
    let adoption = Adoption { registry, session };
    let mut managed = Vec::new();
    for program in programs {
        let outcome = match serde_json::from_slice(&program.note) {
            Ok(Note::Managed { spec, started_at }) => {
                managed.push((started_at, spec, program));
                Ok(())
            }
            Ok(Note::Exec(note)) => adoption.exec(note, program),
            Err(error) => Err((error.into(), program.process)),
        };
        adoption.kill_unknown(outcome);
    }
    // A later process with the same id replaces the earlier one.
    managed.sort_by_key(|(started_at, ..)| *started_at);
    for (started_at, spec, program) in managed {
        adoption.kill_unknown(adoption.managed(started_at, spec, program));
    }
}

/// Exec ids are exact in JavaScript.
const MAX_EXEC_ID: u64 = 1 << 52;

type Outcome = Result<(), (io::Error, Process)>;

struct Adoption<'a> {
    registry: &'a Arc<Registry>,
    session: &'a Arc<Session>,
}

impl Adoption<'_> {
    fn kill_unknown(&self, outcome: Outcome) {
        if let Err((error, process)) = outcome {
            tracing::warn!(
                session = %self.session.id, %error,
                "killing a program of an earlier daemon: its description cannot be read"
            );
            drop(KillOnDrop::new(
                process.control,
                self.session.execs.detach_signal(),
            ));
        }
    }

    fn managed(&self, started_at: Timestamp, spec: ProcessSpec, program: KeptProcess) -> Outcome {
        let (files, facts) = match Files::from_files(program.files, &self.session.budget) {
            Ok(files) => files,
            Err(error) => return Err((error, program.process)),
        };
        let session = self.session;
        let previous = session.processes.get(&spec.process_id);
        let start = Start {
            spec,
            started_at,
            quota_kills: session.quota.kill_count(),
            process: program.process,
            files,
            permit: self
                .registry
                .gate
                .processes
                .take_unlimited(session.incarnation),
            replay_bytes: self.registry.settings.replay.bytes,
        };
        let managed = managed::follow_process(session, start, &facts);
        session.processes.insert(Arc::clone(&managed));
        if let Some(previous) = previous {
            self.end(previous);
        }
        // The earlier daemon was killed while it stopped the process.
        if managed.is_running() && facts.contains(&Fact::StopRequested) {
            self.end(managed);
        }
        Ok(())
    }

    /// Stops it in a task. The lease keeps the session.
    fn end(&self, managed: Arc<Managed>) {
        let lease = Lease::new(self.session);
        let registry = Arc::clone(self.registry);
        tokio::spawn(async move { managed::terminate(&registry, &lease, &managed).await });
    }

    fn exec(&self, note: ExecNote, program: KeptProcess) -> Outcome {
        let (registry, session) = (self.registry, self.session);
        if note.exec_id > MAX_EXEC_ID {
            // No exec ids would be left.
            return Err((invalid_data("the exec id is too large"), program.process));
        }
        registry
            .exec_ids
            .fetch_max(note.exec_id + 1, Ordering::Relaxed);
        let elapsed = BootTime::now().since(note.began);
        let mut record = ExecRecord::continued(note.exec_id, Lease::new(session), elapsed);
        match note.kind {
            KindNote::Captured => captured::adopt(record, note, program, registry),
            KindNote::Live(streaming) => {
                record.hold_permit(registry.gate.streamed.take_unlimited(session.incarnation));
                streamed::adopt(record, note, streaming, program, registry)
            }
        }
    }
}
