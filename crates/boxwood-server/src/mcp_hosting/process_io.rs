//! The pipes of a hosted server's process.
//!
//! Output continues with the first line that no earlier reader received completely.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use boxwood_agent::Answer;
use boxwood_api::{ErrorCode, ProcessId, SessionId};
use boxwood_mcp::{ProcessExit, ProcessIo};
use boxwood_session::{Attachable, Attachment, SessionError, Sessions, Since};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::http::{ApiError, ApiResult};

const CHUNK_BYTES: usize = 64 * 1024;

/// How far back the start of a line is searched. The daemon keeps this much delivered output.
const MAX_LOOK_BACK_BYTES: u64 = 1024 * 1024;

/// How long to wait for another reader to detach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Attached {
    attachment: Attachment,
    /// The start of a line that an earlier reader did not receive completely.
    partial_line: Mutex<Option<Bytes>>,
}

/// Continues where the last reader stopped. A reader that was killed in the middle of a line lost its start, so
/// that line is delivered from its beginning.
pub(super) async fn attach(
    sessions: &Sessions,
    session: &SessionId,
    process: &ProcessId,
) -> ApiResult<Attached> {
    let attachable = sessions.check_attachable(session, process)?;
    let attachment = attach_at(attachable, Since::Now, session, process).await?;
    let now = attachment.stdout_offset();
    let attachable_at = |since| sessions.check_attachable_at(session, process, since);
    let oldest = match attachable_at(Since::Offset(0)) {
        Err(SessionError::ReplayGone { oldest, .. }) => oldest,
        Ok(_) | Err(_) => 0,
    };
    let from = oldest.max(now.saturating_sub(MAX_LOOK_BACK_BYTES));
    if from >= now {
        return Ok(Attached::new(attachment, None));
    }
    // Without a reader, the kept output does not change until the next attach.
    drop(attachment);
    let attachment = attach_at(
        attachable_at(Since::Offset(from))?,
        Since::Offset(from),
        session,
        process,
    )
    .await?;
    let mut before = Vec::new();
    let mut offset = from;
    while offset < now {
        let remaining = usize::try_from(now - offset).unwrap_or(CHUNK_BYTES);
        let Some((_, bytes)) = attachment.next_bytes(remaining.min(CHUNK_BYTES)).await else {
            break;
        };
        offset += bytes.len() as u64;
        before.extend_from_slice(&bytes);
    }
    let partial_line = unfinished_line(&before, from == 0);
    Ok(Attached::new(attachment, partial_line))
}

/// The unfinished last line of `before`. Without any line end, it is only usable if `before` is the whole output.
fn unfinished_line(before: &[u8], is_whole: bool) -> Option<Bytes> {
    let start = match before.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if is_whole => 0,
        None => return None,
    };
    let partial_line = &before[start..];
    (!partial_line.is_empty()).then(|| Bytes::copy_from_slice(partial_line))
}

async fn attach_at(
    attachable: Attachable,
    since: Since,
    session: &SessionId,
    process: &ProcessId,
) -> ApiResult<Attachment> {
    match tokio::time::timeout(ATTACH_TIMEOUT, attachable.attach_at(since)).await {
        Ok(attached) => Ok(attached?),
        Err(_) => Err(ApiError::new(
            ErrorCode::ManagedProcessConflict,
            format!("another reader is attached to process {process} of session {session}"),
        )
        .hint("a process has one reader at a time: close the other relay")),
    }
}

impl Attached {
    fn new(attachment: Attachment, partial_line: Option<Bytes>) -> Self {
        Self {
            attachment,
            partial_line: Mutex::new(partial_line),
        }
    }
}

impl ProcessIo for Attached {
    fn next(&self) -> BoxFuture<'_, Option<Bytes>> {
        let partial_line = self.partial_line.lock();
        let partial_line = partial_line.unwrap_or_else(PoisonError::into_inner).take();
        if partial_line.is_some() {
            return std::future::ready(partial_line).boxed();
        }
        async {
            let (_, bytes) = self.attachment.next_bytes(CHUNK_BYTES).await?;
            Some(bytes)
        }
        .boxed()
    }

    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>> {
        async move {
            let accepted = self.attachment.accept(&bytes).await;
            accepted
                .map(drop)
                .map_err(|error| ApiError::from(error).into())
        }
        .boxed()
    }

    fn close_input(&self) {
        self.attachment.close_stdin();
    }

    fn exited(&self) -> BoxFuture<'_, ProcessExit> {
        async {
            let exit = self.attachment.exited().await;
            ProcessExit::new(exit.exit_code, exit.reason.as_ref())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_line_is_delivered_from_its_beginning() {
        let check = |before: &[u8], is_whole: bool, expected: Option<&[u8]>| {
            let partial_line = unfinished_line(before, is_whole);
            assert_eq!(partial_line.as_deref(), expected, "{before:?}");
        };
        check(b"{}\n{\"a\"", true, Some(b"{\"a\""));
        check(b"{}\n{}\n", true, None);
        check(b"{\"a\"", true, Some(b"{\"a\""));
        check(b"\"a\"", false, None);
        check(b"tail}\n{\"b", false, Some(b"{\"b"));
        check(b"", true, None);
    }
}
