//! Puts the programs of an earlier daemon back where they were.
//!
//! Comes in: what the box's first process kept of them. Goes out: managed processes and commands, as if
//! this daemon had started them. A program whose note nobody here understands is killed: nobody could
//! ever ask for it, and it would run for as long as its box.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::ProcessSpec;
use boxwood_backend::{KeptProcess, Process};
use jiff::Timestamp;

use crate::facts::Fact;
use crate::files::Files;
use crate::journal::wrong;
use crate::leash::{Killed, Leash};
use crate::live::Resume;
use crate::managed::{self, Managed, Start};
use crate::notes::{BootTime, ExecNote, KindNote, Note};
use crate::registry::Registry;
use crate::session::{Ending, ExecRecord, Lease, Session};
use crate::{exec, live};

pub(crate) fn adopt(registry: &Arc<Registry>, session: &Arc<Session>, kept: Vec<KeptProcess>) {
    let adoption = Adoption { registry, session };
    let mut managed = Vec::new();
    for program in kept {
        let outcome = match Note::read(&program.note) {
            Ok(Note::Managed { spec, started_at }) => {
                managed.push((started_at, spec, program));
                Ok(())
            }
            Ok(Note::Exec(note)) => adoption.exec(note, program),
            Err(error) => Err((error, program.process)),
        };
        adoption.kill_unknown(outcome);
    }
    // Of two with one id the later one took the earlier one's place.
    managed.sort_by_key(|(started_at, ..)| *started_at);
    for (started_at, spec, program) in managed {
        adoption.kill_unknown(adoption.managed(started_at, spec, program));
    }
}

/// Numbers of commands are exact in JavaScript.
const LARGEST_ID: u64 = 1 << 52;

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
                "a program of an earlier daemon is killed: what it was is not known"
            );
            drop(Leash::new(process.control, self.session.execs.parting()));
        }
    }

    fn managed(&self, started_at: Timestamp, spec: ProcessSpec, program: KeptProcess) -> Outcome {
        let (files, facts) = match Files::kept(program.files, &self.session.budget) {
            Ok(files) => files,
            Err(error) => return Err((error, program.process)),
        };
        let session = self.session;
        let previous = session.processes.get(&spec.process_id);
        let start = Start {
            spec,
            started_at,
            began_after: session.stops.before(),
            process: program.process,
            files,
            seat: self.registry.gate.adopted_process(session.incarnation),
            limits: self.registry.settings.replay,
        };
        let managed = managed::adopt(session, start, &facts);
        session.processes.adopt(Arc::clone(&managed));
        if let Some(previous) = previous {
            self.end(previous);
        }
        // Somebody stopped it, and was killed before that was done.
        if managed.is_running() && facts.contains(&Fact::Asked) {
            self.end(managed);
        }
        Ok(())
    }

    /// Ends it in a task. The session stays in use meanwhile.
    fn end(&self, managed: Arc<Managed>) {
        let lease = Lease::new(self.session);
        let registry = Arc::clone(self.registry);
        tokio::spawn(async move {
            let grace = registry.settings.stop_grace;
            if let Killed::Alive = managed.terminate(grace).await {
                close_unkillable(&registry, &lease.session);
            }
        });
    }

    fn exec(&self, note: ExecNote, program: KeptProcess) -> Outcome {
        let (registry, session) = (self.registry, self.session);
        if note.exec_id > LARGEST_ID {
            // From here on there would be no numbers left.
            return Err((wrong("a command has an impossible number"), program.process));
        }
        registry
            .exec_ids
            .fetch_max(note.exec_id + 1, Ordering::Relaxed);
        let ago = BootTime::now().since(note.began);
        let mut record = ExecRecord::continued(note.exec_id, Lease::new(session), ago);
        let unkillable = {
            let (registry, session) = (Arc::clone(registry), Arc::clone(session));
            move || close_unkillable(&registry, &session)
        };
        match note.kind {
            KindNote::Captured => {
                let adopted = exec::Adopted {
                    record,
                    note,
                    process: program.process,
                    files: program.files,
                };
                exec::adopt(adopted, &registry.room(), unkillable)
            }
            KindNote::Live { stdio, resumable } => {
                record.sit(registry.gate.adopted_live(session.incarnation));
                let resume = if resumable {
                    Resume::Allowed
                } else {
                    Resume::Never
                };
                let adopted = live::Adopted {
                    record,
                    note,
                    stdio,
                    resume,
                    limits: registry.settings.replay,
                    process: program.process,
                    files: program.files,
                };
                live::adopt(adopted, unkillable)
            }
        }
    }
}

fn close_unkillable(registry: &Arc<Registry>, session: &Arc<Session>) {
    registry.close_if(
        session,
        Ending::Died,
        "a program in it could not be killed",
        |_| true,
    );
}
