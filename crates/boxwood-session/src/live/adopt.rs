//! Goes on with a live command that an earlier daemon started.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use boxwood_api::ExecExit;
use boxwood_backend::Process;

use super::Resume;
use super::follow::Known;
use super::start::{Parts, set_off};
use crate::facts::{EndFact, Fact};
use crate::files::Files;
use crate::notes::{ExecNote, StdioNote};
use crate::replay::ReplayLimits;
use crate::session::ExecRecord;

pub(crate) struct Adopted {
    /// Its beginning was told by the earlier daemon.
    pub(crate) record: ExecRecord,
    pub(crate) note: ExecNote,
    pub(crate) stdio: StdioNote,
    pub(crate) resume: Resume,
    pub(crate) limits: ReplayLimits,
    pub(crate) process: Process,
    pub(crate) files: Vec<OwnedFd>,
}

/// Follows it to its end in a task. An error leaves it as it is.
pub(crate) fn adopt(
    adopted: Adopted,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let (files, facts) = match Files::kept(adopted.files, &adopted.record.session().budget) {
        Ok(files) => files,
        Err(error) => return Err((error, adopted.process)),
    };
    let parts = Parts {
        record: adopted.record,
        note: adopted.note,
        stdio: adopted.stdio.stdio(),
        resume: adopted.resume,
        limits: adopted.limits,
        process: adopted.process,
        files,
    };
    let known = Known {
        timed_out: facts.contains(&Fact::TimedOut),
        abandoned: facts.contains(&Fact::Abandoned),
        ended: facts.iter().find_map(|fact| match fact {
            Fact::Ended(end) => Some(exit_of(end)),
            Fact::Asked | Fact::TimedOut | Fact::Abandoned => None,
        }),
    };
    let (task, feeder) = parts.assemble(true, known);
    if facts.contains(&Fact::Asked) {
        task.live.signalled.store(true, Ordering::Release);
    }
    set_off(task, feeder, unkillable);
    Ok(())
}

fn exit_of(end: &EndFact) -> ExecExit {
    ExecExit {
        exit_code: end.exit_code,
        status: end.status,
        reason: end.reason.clone(),
        duration_ms: end.duration_ms,
        notices: Vec::new(),
    }
}
