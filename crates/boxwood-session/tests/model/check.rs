//! Compares the responses of the daemon with the model.

use boxwood_session::SessionError;

use crate::daemon::{Daemon, Killed};
use crate::model::DELETED;
use crate::observe;
use crate::perform::{Response, stream};
use crate::plan::{Cut, Op};
use crate::scenario::{Outcome, Scenario};

fn unexpected(response: &Response) -> Outcome {
    Err(format!("unexpected answer {response:?}"))
}

impl Scenario<'_> {
    pub(crate) fn check_response(&mut self, op: &Op, response: &Response) -> Outcome {
        let model = &mut self.model;
        match (op, response) {
            (_, Response::Wrong(message)) => return Err(message.clone()),
            (Op::Create { session, kind }, Response::Incarnation(incarnation)) => {
                match model.sessions.get(session) {
                    Some(found) if found.incarnation == *incarnation && found.kind == *kind => {}
                    Some(found) => return Err(format!("{incarnation} instead of {found:?}")),
                    None => model.made(*session, *kind, *incarnation)?,
                }
            }
            (
                Op::Create { session, kind } | Op::Exec { session, kind, .. },
                Response::Error(SessionError::Conflict { .. }),
            ) => {
                if model
                    .sessions
                    .get(session)
                    .is_none_or(|found| found.kind == *kind)
                {
                    return unexpected(response);
                }
            }
            (
                Op::Exec {
                    session,
                    kind,
                    code: expected,
                },
                Response::Exec { code, stdout },
            ) => {
                if *code != Some(i32::from(*expected)) || *stdout != format!("hello {expected}\n") {
                    return unexpected(response);
                }
                self.check_exec_session(*session, *kind)?;
            }
            (Op::Delete { session }, Response::Deleted) => {
                // A session whose box has died may still be closing.
                if !model.sessions.contains_key(session) && !model.ended_by_itself(*session) {
                    return unexpected(response);
                }
                model.end_session(*session, Some(DELETED));
            }
            (
                Op::Start { session, .. }
                | Op::Send { session, .. }
                | Op::Read { session, .. }
                | Op::Stop { session, .. }
                | Op::Delete { session },
                Response::Error(SessionError::NotFound { .. } | SessionError::Gone { .. }),
            ) if !model.sessions.contains_key(session) => {}
            (Op::Stale { pick }, Response::Error(error @ SessionError::Gone { .. })) => {
                let past = &model.past[usize::from(*pick) % model.past.len()];
                let text = error.to_string();
                if past.why.is_some_and(|why| !text.contains(why)) {
                    return Err(format!("{past:?}, but the error is {text:?}"));
                }
            }
            (Op::Stale { .. }, Response::Nothing) if model.past.is_empty() => {}
            (Op::Expire, Response::Nothing) => model.expire(),
            _ => return self.check_process_response(op, response),
        }
        Ok(())
    }

    fn check_process_response(&mut self, op: &Op, response: &Response) -> Outcome {
        let model = &mut self.model;
        match (op, response) {
            (
                Op::Start {
                    session,
                    process,
                    replace,
                },
                Response::Started(at),
            ) => {
                if !replace && model.is_running(*session, *process) {
                    return unexpected(response);
                }
                model.started(*session, *process, *at);
            }
            (
                Op::Start {
                    session,
                    process,
                    replace: false,
                },
                Response::Error(SessionError::ProcessConflict { .. }),
            ) if model.is_running(*session, *process) => {}
            (
                Op::Send {
                    session,
                    process,
                    bytes,
                },
                Response::Echoed,
            ) => {
                let input_bytes = model.input_bytes(*session, *process) + u64::from(*bytes);
                model.input_bytes.insert((*session, *process), input_bytes);
            }
            (
                Op::Read {
                    session,
                    process,
                    percent,
                },
                Response::Output(output),
            ) => {
                let input_bytes = model.input_bytes(*session, *process);
                let from = input_bytes * u64::from(*percent) / 100;
                let whole = stream(from, input_bytes);
                let is_running = model.is_running(*session, *process);
                if !(whole.starts_with(output) && (output.len() == whole.len() || !is_running)) {
                    return Err(format!(
                        "{} bytes of output from {from} to {input_bytes}",
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
                Response::Error(
                    SessionError::ProcessNotRunning { .. } | SessionError::ProcessReplaced { .. },
                ),
            ) if model.process(*session, *process).is_some()
                && !model.is_running(*session, *process) => {}
            (Op::Stop { session, process }, Response::Stopped) => {
                if model.process(*session, *process).is_none() {
                    return unexpected(response);
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
                Response::Error(SessionError::ProcessNotFound { .. }),
            ) if model.process(*session, *process).is_none() => {}
            _ => return unexpected(response),
        }
        Ok(())
    }

    /// The response to a command does not contain the incarnation.
    fn check_exec_session(&mut self, session: u8, kind: u8) -> Outcome {
        match self.model.sessions.get(&session) {
            Some(found) if found.kind == kind => Ok(()),
            Some(found) => Err(format!("a command of kind {kind} ran in {found:?}")),
            None => {
                let observed = if let Some(daemon) = &self.daemon {
                    observe::sessions(daemon)
                } else {
                    // The daemon was killed after the response. Its sessions are those of the next daemon.
                    let daemon = Daemon::start(&self.host, self.directory, None);
                    let daemon = daemon.map_err(|Killed| "killed without a request")?;
                    let observed = observe::sessions(&daemon);
                    daemon.kill("dying", async {}, Cut::Turns(0));
                    observed
                };
                let found = observed
                    .get(&session)
                    .ok_or("the session of a command is gone")?;
                self.model.made(session, kind, found.incarnation)
            }
        }
    }
}
