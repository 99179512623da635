//! Performs the operations of a plan on a daemon and returns its responses.

use std::sync::Arc;

use boxwood_api::{ProcessId, ProcessSpec, SessionId};
use boxwood_policy::Admission;
use boxwood_session::{Replace, SessionError, Sessions, Since};
use boxwood_test_support::{FakeHost, admission};
use jiff::Timestamp;

use crate::daemon::TTL;
use crate::model::{DELETED, Model, Past};
use crate::plan::Op;

/// The answer of a request.
#[derive(Debug)]
pub(crate) enum Response {
    Incarnation(u64),
    Exec {
        code: Option<i32>,
        stdout: String,
    },
    Started(Timestamp),
    Stopped,
    Deleted,
    Echoed,
    Output(Vec<u8>),
    Known,
    /// Something that is never right.
    Wrong(String),
    /// No request was made.
    Nothing,
    Error(SessionError),
}

pub(crate) fn id(session: u8) -> SessionId {
    SessionId::new(&format!("s{session}")).expect("a legal id")
}

pub(crate) fn process_id(process: u8) -> ProcessId {
    ProcessId::new(&format!("p{process}")).expect("a legal id")
}

pub(crate) fn memory_mb(kind: u8) -> u64 {
    256 + 64 * u64::from(kind)
}

pub(crate) fn admitted(session: u8, kind: u8, cmd: &str) -> Admission {
    let change = |spec: &mut boxwood_api::SpecRequest| spec.memory_mb = Some(memory_mb(kind));
    admission(&format!("s{session}"), cmd, change).expect("policy allows it")
}

/// Input and output of a process at these offsets. Lost or repeated bytes are detected.
pub(crate) fn stream(from: u64, to: u64) -> Vec<u8> {
    let byte = |at: u64| b'!' + u8::try_from(at % 89).expect("small");
    (from..to).map(byte).collect()
}

fn process(name: u8) -> ProcessSpec {
    ProcessSpec {
        process_id: process_id(name),
        command: "@".to_owned(),
        args: vec![format!("name p{name}; echo")],
        env: std::collections::BTreeMap::default(),
        cwd: "/workspace".to_owned(),
    }
}

/// Input size and state of the process, or the ended session, that `op` is about.
fn known(model: &Model, op: &Op) -> (u64, bool, Option<Past>) {
    match *op {
        Op::Send {
            session, process, ..
        }
        | Op::Read {
            session, process, ..
        } => {
            let input_bytes = model.input_bytes(session, process);
            (input_bytes, model.is_running(session, process), None)
        }
        Op::Stale { pick } => {
            let past = &model.past;
            let picked = past.get(usize::from(pick) % past.len().max(1));
            (0, false, picked.cloned())
        }
        _ => (0, false, None),
    }
}

/// The future is `'static`, so that it can be killed with its daemon.
pub(crate) fn perform(
    sessions: Sessions,
    model: &Model,
    op: Op,
) -> impl Future<Output = Response> + Send + 'static {
    let (input_bytes, is_running, past) = known(model, &op);
    async move {
        match op {
            Op::Create { session, kind } => {
                let spec = admitted(session, kind, "true").spec;
                match sessions.get_or_create(spec).await {
                    Ok(info) => Response::Incarnation(info.incarnation),
                    Err(error) => Response::Error(error),
                }
            }
            Op::Exec {
                session,
                kind,
                code,
            } => {
                let cmd = format!("@ say hello {code}; exit {code}");
                match sessions.exec(admitted(session, kind, &cmd)).await {
                    Ok(result) => Response::Exec {
                        code: result.exit_code,
                        stdout: result.stdout,
                    },
                    Err(error) => Response::Error(error),
                }
            }
            Op::Start {
                session,
                process: name,
                replace,
            } => {
                let replace = if replace {
                    Replace::Running
                } else {
                    Replace::Refuse
                };
                let id = id(session);
                let starting = sessions.start_process(&id, process(name), replace);
                match starting.await {
                    Ok(info) => Response::Started(info.started_at),
                    Err(error) => Response::Error(error),
                }
            }
            Op::Send {
                session,
                process,
                bytes,
            } => {
                let name = (id(session), process_id(process));
                let sent = if is_running {
                    echo(&sessions, &name, input_bytes, bytes).await
                } else {
                    refused(&sessions, &name, input_bytes, bytes).await
                };
                sent.unwrap_or_else(Response::Error)
            }
            Op::Read {
                session,
                process,
                percent,
            } => {
                let from = input_bytes * u64::from(percent) / 100;
                match read(&sessions, session, process, from, input_bytes).await {
                    Ok(output) => Response::Output(output),
                    Err(error) => Response::Error(error),
                }
            }
            Op::Stop { session, process } => {
                let (id, process) = (id(session), process_id(process));
                let stopping = sessions.stop_process(&id, &process);
                match stopping.await {
                    Ok(_) => Response::Stopped,
                    Err(error) => Response::Error(error),
                }
            }
            Op::Delete { session } => match sessions.delete(&id(session), DELETED).await {
                Ok(()) => Response::Deleted,
                Err(error) => Response::Error(error),
            },
            Op::Stale { .. } => past.map_or(Response::Nothing, |past| stale(&sessions, &past)),
            Op::Expire => {
                for _ in 0..3 {
                    tokio::time::advance(TTL).await;
                    tokio::task::yield_now().await;
                }
                Response::Nothing
            }
            Op::Ends { .. } | Op::Dies { .. } => Response::Nothing,
        }
    }
}

fn stale(sessions: &Sessions, past: &Past) -> Response {
    let handle = sessions.expecting(Some(past.incarnation));
    match handle.detail(&id(past.session)) {
        Ok(_) => Response::Known,
        Err(error) => Response::Error(error),
    }
}

async fn echo(
    sessions: &Sessions,
    (session, process): &(SessionId, ProcessId),
    input_bytes: u64,
    bytes: u16,
) -> Result<Response, SessionError> {
    let since = Since::Offset(input_bytes);
    let found = sessions.check_attachable_at(session, process, since)?;
    let attachment = found.attach_at(since).await?;
    let (accepted, offset) = (attachment.stdin_accepted(), attachment.stdout_offset());
    if accepted != input_bytes || offset != input_bytes {
        let message = format!(
            "{accepted} bytes of input and {offset} of output instead of {input_bytes} each"
        );
        return Ok(Response::Wrong(message));
    }
    let until = input_bytes + u64::from(bytes);
    let input = stream(input_bytes, until);
    let accepted = attachment.accept(&input).await?;
    if accepted != until {
        let message = format!("of {until} bytes {accepted} were accepted");
        return Ok(Response::Wrong(message));
    }
    let mut output = Vec::new();
    while output.len() < input.len() {
        let Some((at, more)) = attachment.next_bytes(4096).await else {
            let message = format!("its output ends after {} bytes, and it runs", output.len());
            return Ok(Response::Wrong(message));
        };
        if at != input_bytes + output.len() as u64 {
            let message = format!("output at {at} instead of {input_bytes} + {}", output.len());
            return Ok(Response::Wrong(message));
        }
        output.extend_from_slice(&more);
    }
    if output != input {
        let same = output
            .iter()
            .zip(&input)
            .take_while(|(one, other)| one == other);
        let message = format!(
            "echo of {bytes} bytes after {input_bytes} has {} bytes, of which the first {} are correct",
            output.len(),
            same.count()
        );
        return Ok(Response::Wrong(message));
    }
    Ok(Response::Echoed)
}

/// Clients of an ended process can attach and read, but its input is refused.
async fn refused(
    sessions: &Sessions,
    (session, process): &(SessionId, ProcessId),
    input_bytes: u64,
    bytes: u16,
) -> Result<Response, SessionError> {
    let since = Since::Offset(input_bytes);
    let found = sessions.check_attachable_at(session, process, since)?;
    let attachment = found.attach_at(since).await?;
    let input = stream(input_bytes, input_bytes + u64::from(bytes));
    let accepted = attachment.accept(&input).await?;
    let message = format!("{accepted} bytes were accepted for a process that has ended");
    Ok(Response::Wrong(message))
}

/// The output between two offsets. Shorter only if the process has ended.
async fn read(
    sessions: &Sessions,
    session: u8,
    process: u8,
    from: u64,
    until: u64,
) -> Result<Vec<u8>, SessionError> {
    let since = Since::Offset(from);
    let found = sessions.check_attachable_at(&id(session), &process_id(process), since)?;
    let attachment = found.attach_at(since).await?;
    let mut output = Vec::new();
    while from + (output.len() as u64) < until {
        match attachment.next_bytes(4096).await {
            Some((_, more)) => output.extend_from_slice(&more),
            None => break,
        }
    }
    Ok(output)
}

/// Ends a process on the host, with or without a daemon. Returns false if it is not running.
pub(crate) fn end_process(host: &Arc<FakeHost>, session: u8, process: u8, code: u8) -> bool {
    let found = host.box_of(&id(session));
    found.is_some_and(|found| found.end_program(&format!("p{process}"), i32::from(code)))
}

pub(crate) fn kill_box(host: &Arc<FakeHost>, session: u8) -> bool {
    match host.box_of(&id(session)) {
        Some(found) => {
            found.die();
            true
        }
        None => false,
    }
}
