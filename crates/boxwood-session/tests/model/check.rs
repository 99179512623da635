//! What the daemon answered, held against the model.

use boxwood_session::SessionError;

use crate::act::{Said, stream};
use crate::daemon::{Daemon, Killed};
use crate::look;
use crate::model::DELETED;
use crate::plan::{Cut, Op};
use crate::story::{Outcome, Story};

fn wrong(said: &Said) -> Outcome {
    Err(format!("unexpected answer {said:?}"))
}

impl Story<'_> {
    pub(crate) fn heard(&mut self, op: &Op, said: &Said) -> Outcome {
        let model = &mut self.model;
        match (op, said) {
            (_, Said::Wrong(what)) => return Err(what.clone()),
            (Op::Create { session, kind }, Said::Incarnation(incarnation)) => {
                match model.sessions.get(session) {
                    Some(found) if found.incarnation == *incarnation && found.kind == *kind => {}
                    Some(found) => return Err(format!("{incarnation} instead of {found:?}")),
                    None => model.made(*session, *kind, *incarnation)?,
                }
            }
            (
                Op::Create { session, kind } | Op::Exec { session, kind, .. },
                Said::Error(SessionError::Conflict { .. }),
            ) => {
                if model
                    .sessions
                    .get(session)
                    .is_none_or(|it| it.kind == *kind)
                {
                    return wrong(said);
                }
            }
            (
                Op::Exec {
                    session,
                    kind,
                    code: wanted,
                },
                Said::Exec { code, stdout },
            ) => {
                if *code != Some(i32::from(*wanted)) || *stdout != format!("hello {wanted}\n") {
                    return wrong(said);
                }
                self.made_by_exec(*session, *kind)?;
            }
            (Op::Delete { session }, Said::Deleted) => {
                // What is left of a box that went by itself may still be on its way out.
                if !model.sessions.contains_key(session) && !model.ended_by_itself(*session) {
                    return wrong(said);
                }
                model.gone(*session, Some(DELETED));
            }
            (
                Op::Start { session, .. }
                | Op::Send { session, .. }
                | Op::Read { session, .. }
                | Op::Stop { session, .. }
                | Op::Delete { session },
                Said::Error(SessionError::NotFound { .. } | SessionError::Gone { .. }),
            ) if !model.sessions.contains_key(session) => {}
            (Op::Stale { pick }, Said::Error(error @ SessionError::Gone { .. })) => {
                let past = &model.past[usize::from(*pick) % model.past.len()];
                let text = error.to_string();
                if past.why.is_some_and(|why| !text.contains(why)) {
                    return Err(format!("{past:?} is told as {text:?}"));
                }
            }
            (Op::Stale { .. }, Said::Nothing) if model.past.is_empty() => {}
            (Op::Expire, Said::Nothing) => model.expire(),
            _ => return self.heard_of_process(op, said),
        }
        Ok(())
    }

    fn heard_of_process(&mut self, op: &Op, said: &Said) -> Outcome {
        let model = &mut self.model;
        match (op, said) {
            (
                Op::Start {
                    session,
                    process,
                    replace,
                },
                Said::Started(at),
            ) => {
                if !replace && model.is_running(*session, *process) {
                    return wrong(said);
                }
                model.started(*session, *process, *at);
            }
            (
                Op::Start {
                    session,
                    process,
                    replace: false,
                },
                Said::Error(SessionError::ProcessConflict { .. }),
            ) if model.is_running(*session, *process) => {}
            (
                Op::Send {
                    session,
                    process,
                    bytes,
                },
                Said::Echoed,
            ) => {
                let told = model.told(*session, *process) + u64::from(*bytes);
                model.told.insert((*session, *process), told);
            }
            (
                Op::Read {
                    session,
                    process,
                    percent,
                },
                Said::Output(output),
            ) => {
                let told = model.told(*session, *process);
                let from = told * u64::from(*percent) / 100;
                let whole = stream(from, told);
                let is_running = model.is_running(*session, *process);
                if !(whole.starts_with(output) && (output.len() == whole.len() || !is_running)) {
                    return Err(format!(
                        "{} bytes of output from {from} to {told}",
                        output.len()
                    ));
                }
            }
            (
                Op::Send {
                    session, process, ..
                }
                | Op::Read {
                    session, process, ..
                },
                Said::Error(
                    SessionError::ProcessNotRunning { .. } | SessionError::ProcessReplaced { .. },
                ),
            ) if model.process(*session, *process).is_some()
                && !model.is_running(*session, *process) => {}
            (Op::Stop { session, process }, Said::Stopped) => {
                if model.process(*session, *process).is_none() {
                    return wrong(said);
                }
                model.stopped(*session, *process);
            }
            (
                Op::Send {
                    session, process, ..
                }
                | Op::Read {
                    session, process, ..
                }
                | Op::Stop { session, process },
                Said::Error(SessionError::ProcessNotFound { .. }),
            ) if model.process(*session, *process).is_none() => {}
            _ => return wrong(said),
        }
        Ok(())
    }

    /// The answer to a command does not tell the incarnation.
    fn made_by_exec(&mut self, session: u8, kind: u8) -> Outcome {
        match self.model.sessions.get(&session) {
            Some(found) if found.kind == kind => Ok(()),
            Some(found) => Err(format!("a command of kind {kind} ran in {found:?}")),
            None => {
                let seen = if let Some(daemon) = &self.daemon {
                    look::sessions(daemon)
                } else {
                    // Killed right after; the next one tells.
                    let daemon = Daemon::start(&self.host, self.directory, None);
                    let daemon = daemon.map_err(|Killed| "killed without a request")?;
                    let seen = look::sessions(&daemon);
                    daemon.kill("dying", async {}, Cut::Turns(0));
                    seen
                };
                let found = seen
                    .get(&session)
                    .ok_or("the session of a command is gone")?;
                self.model.made(session, kind, found.incarnation)
            }
        }
    }
}
