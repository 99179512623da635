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

const PIECE_BYTES: usize = 64 * 1024;

/// How far back the start of a line is searched. The daemon keeps this much delivered output.
const LOOK_BACK_BYTES: u64 = 1024 * 1024;

/// How long to wait for another reader to detach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Attached {
    attachment: Attachment,
    /// The start of a line that an earlier reader did not receive completely.
    begun: Mutex<Option<Bytes>>,
}

/// Continues where the last reader stopped. A reader that was killed in the middle of a line lost its start, so
/// that line is delivered from its beginning.
pub(super) async fn attach(
    sessions: &Sessions,
    session: &SessionId,
    process: &ProcessId,
) -> ApiResult<Attached> {
    let waiting = sessions.check_attachable(session, process)?;
    let attachment = attach_at(waiting, Since::Now, session, process).await?;
    let now = attachment.stdout_offset();
    let at = |since| sessions.check_attachable_at(session, process, since);
    let oldest = match at(Since::Offset(0)) {
        Err(SessionError::ReplayGone { oldest, .. }) => oldest,
        Ok(_) | Err(_) => 0,
    };
    let from = oldest.max(now.saturating_sub(LOOK_BACK_BYTES));
    if from >= now {
        return Ok(Attached::new(attachment, None));
    }
    // Without a reader, the kept output does not change until the next attach.
    drop(attachment);
    let attachment = attach_at(
        at(Since::Offset(from))?,
        Since::Offset(from),
        session,
        process,
    )
    .await?;
    let mut before = Vec::new();
    let mut place = from;
    while place < now {
        let most = usize::try_from(now - place).unwrap_or(PIECE_BYTES);
        let Some((_, bytes)) = attachment.next_bytes(most.min(PIECE_BYTES)).await else {
            break;
        };
        place += bytes.len() as u64;
        before.extend_from_slice(&bytes);
    }
    let begun = begun_line(&before, from == 0);
    Ok(Attached::new(attachment, begun))
}

/// The unfinished last line of `before`. Without any line end, it is only usable if `before` is the whole output.
fn begun_line(before: &[u8], is_whole: bool) -> Option<Bytes> {
    let start = match before.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if is_whole => 0,
        None => return None,
    };
    let begun = &before[start..];
    (!begun.is_empty()).then(|| Bytes::copy_from_slice(begun))
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
    fn new(attachment: Attachment, begun: Option<Bytes>) -> Self {
        Self {
            attachment,
            begun: Mutex::new(begun),
        }
    }
}

impl ProcessIo for Attached {
    fn next(&self) -> BoxFuture<'_, Option<Bytes>> {
        let begun = self.begun.lock();
        let begun = begun.unwrap_or_else(PoisonError::into_inner).take();
        if begun.is_some() {
            return std::future::ready(begun).boxed();
        }
        async {
            let (_, bytes) = self.attachment.next_bytes(PIECE_BYTES).await?;
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
            let begun = begun_line(before, is_whole);
            assert_eq!(begun.as_deref(), expected, "{before:?}");
        };
        check(b"{}\n{\"a\"", true, Some(b"{\"a\""));
        check(b"{}\n{}\n", true, None);
        check(b"{\"a\"", true, Some(b"{\"a\""));
        check(b"\"a\"", false, None);
        check(b"tail}\n{\"b", false, Some(b"{\"b"));
        check(b"", true, None);
    }
}
