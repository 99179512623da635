//! Does to a daemon what the plan says, and hears what it answers.

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
pub(crate) enum Said {
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

pub(crate) fn asked(session: u8, kind: u8, cmd: &str) -> Admission {
    let change = |spec: &mut boxwood_api::SpecRequest| spec.memory_mb = Some(memory_mb(kind));
    admission(&format!("s{session}"), cmd, change).expect("policy allows it")
}

/// What a process is told and says, at each place of its stream: a byte that is lost or doubled shows.
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

/// What the model knows of a process, and of a session that was.
fn known(model: &Model, op: &Op) -> (u64, bool, Option<Past>) {
    match *op {
        Op::Send {
            session, process, ..
        }
        | Op::Read {
            session, process, ..
        } => {
            let told = model.told(session, process);
            (told, model.is_running(session, process), None)
        }
        Op::Stale { pick } => {
            let past = &model.past;
            let picked = past.get(usize::from(pick) % past.len().max(1));
            (0, false, picked.cloned())
        }
        _ => (0, false, None),
    }
}

/// A future that stands on its own feet, so that it can be killed with its daemon.
pub(crate) fn act(
    sessions: Sessions,
    model: &Model,
    op: Op,
) -> impl Future<Output = Said> + Send + 'static {
    let (told, runs, past) = known(model, &op);
    async move {
        match op {
            Op::Create { session, kind } => {
                let spec = asked(session, kind, "true").spec;
                match sessions.get_or_create(spec).await {
                    Ok(info) => Said::Incarnation(info.incarnation),
                    Err(error) => Said::Error(error),
                }
            }
            Op::Exec {
                session,
                kind,
                code,
            } => {
                let cmd = format!("@ say hello {code}; exit {code}");
                match sessions.exec(asked(session, kind, &cmd)).await {
                    Ok(result) => Said::Exec {
                        code: result.exit_code,
                        stdout: result.stdout,
                    },
                    Err(error) => Said::Error(error),
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
                    Ok(info) => Said::Started(info.started_at),
                    Err(error) => Said::Error(error),
                }
            }
            Op::Send {
                session,
                process,
                bytes,
            } => {
                let name = (id(session), process_id(process));
                let sent = if runs {
                    echo(&sessions, &name, told, bytes).await
                } else {
                    refused(&sessions, &name, told, bytes).await
                };
                sent.unwrap_or_else(Said::Error)
            }
            Op::Read {
                session,
                process,
                percent,
            } => {
                let from = told * u64::from(percent) / 100;
                match read(&sessions, session, process, from, told).await {
                    Ok(output) => Said::Output(output),
                    Err(error) => Said::Error(error),
                }
            }
            Op::Stop { session, process } => {
                let (id, process) = (id(session), process_id(process));
                let stopping = sessions.stop_process(&id, &process);
                match stopping.await {
                    Ok(_) => Said::Stopped,
                    Err(error) => Said::Error(error),
                }
            }
            Op::Delete { session } => match sessions.delete(&id(session), DELETED).await {
                Ok(()) => Said::Deleted,
                Err(error) => Said::Error(error),
            },
            Op::Stale { .. } => past.map_or(Said::Nothing, |past| stale(&sessions, &past)),
            Op::Expire => {
                for _ in 0..3 {
                    tokio::time::advance(TTL).await;
                    tokio::task::yield_now().await;
                }
                Said::Nothing
            }
            Op::Ends { .. } | Op::Dies { .. } => Said::Nothing,
        }
    }
}

fn stale(sessions: &Sessions, past: &Past) -> Said {
    let handle = sessions.expecting(Some(past.incarnation));
    match handle.detail(&id(past.session)) {
        Ok(_) => Said::Known,
        Err(error) => Said::Error(error),
    }
}

async fn echo(
    sessions: &Sessions,
    (session, process): &(SessionId, ProcessId),
    told: u64,
    bytes: u16,
) -> Result<Said, SessionError> {
    let since = Since::Offset(told);
    let found = sessions.check_attachable_at(session, process, since)?;
    let attachment = found.attach_at(since).await?;
    let (accepted, offset) = (attachment.stdin_accepted(), attachment.stdout_offset());
    if accepted != told || offset != told {
        let wrong = format!("it was told {told} bytes; {accepted} are in, and {offset} out");
        return Ok(Said::Wrong(wrong));
    }
    let until = told + u64::from(bytes);
    let input = stream(told, until);
    let accepted = attachment.accept(&input).await?;
    if accepted != until {
        let wrong = format!("of {until} bytes {accepted} were accepted");
        return Ok(Said::Wrong(wrong));
    }
    let mut output = Vec::new();
    while output.len() < input.len() {
        let Some((at, more)) = attachment.next_bytes(4096).await else {
            let wrong = format!("its output ends after {} bytes, and it runs", output.len());
            return Ok(Said::Wrong(wrong));
        };
        if at != told + output.len() as u64 {
            let wrong = format!("{at} comes after {told} and {}", output.len());
            return Ok(Said::Wrong(wrong));
        }
        output.extend_from_slice(&more);
    }
    if output != input {
        let same = output
            .iter()
            .zip(&input)
            .take_while(|(one, other)| one == other);
        let wrong = format!(
            "told {bytes} bytes after {told}, it says {}, and the first {} are right",
            output.len(),
            same.count()
        );
        return Ok(Said::Wrong(wrong));
    }
    Ok(Said::Echoed)
}

/// A client of an ended process may read, and no input is accepted that the process would not read.
async fn refused(
    sessions: &Sessions,
    (session, process): &(SessionId, ProcessId),
    told: u64,
    bytes: u16,
) -> Result<Said, SessionError> {
    let since = Since::Offset(told);
    let found = sessions.check_attachable_at(session, process, since)?;
    let attachment = found.attach_at(since).await?;
    let input = stream(told, told + u64::from(bytes));
    let accepted = attachment.accept(&input).await?;
    let wrong = format!("{accepted} bytes were accepted for a process that has ended");
    Ok(Said::Wrong(wrong))
}

/// All it has said from somewhere on. Ends early only when the process has.
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

/// What happens on the host, whether or not there is a daemon. True when it did.
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
