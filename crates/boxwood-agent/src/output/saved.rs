//! Saves output that was too long for the result as files in the box, for the `read` tool. Old outputs are removed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boxwood_api::{ErrorCode, FileKind, KEPT_OUTPUT, SessionId};

use crate::boxes::{Answer, Boxes};
use crate::output::capture::{Kept, MAX_SAVED_BYTES, NotKept};
use crate::progress::Stream;

/// Number of commands whose outputs are kept in one box.
const MAX_COMMANDS: usize = 16;

/// Limit of all outputs in one box. They are in its `/tmp`, which programs use too. It has 48 MiB in the smallest of the built-in
/// profiles.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Saving must not delay the result for longer.
pub(crate) const SAVE_TIMEOUT: Duration = Duration::from_secs(15);

/// A larger number in a name does not affect the numbers of new outputs, because programs in the box can create any name.
const MAX_NUMBER: u64 = 1 << 40;

/// Numbers for outputs, each given once.
#[derive(Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    fn next_above(&self, seen: u64) -> u64 {
        self.0.fetch_max(seen, Ordering::Relaxed);
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The paths of the streams of one command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedPaths {
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    /// For the model.
    pub(crate) notices: Vec<String>,
}

/// Saves cut streams in the box. A failure is reported as a notice.
pub(crate) async fn save(
    boxes: &dyn Boxes,
    session: &SessionId,
    numbers: &Numbers,
    streams: [(Stream, Option<Result<Kept, NotKept>>); 2],
) -> SavedPaths {
    let mut paths = SavedPaths::default();
    let mut cut_streams = Vec::new();
    for (stream, kept) in streams {
        match kept {
            None => {}
            Some(Ok(kept)) => cut_streams.push((stream, kept)),
            Some(Err(NotKept)) => {
                let why = "the output of all running commands exceeds the memory limit";
                paths.notices.push(not_kept(why));
            }
        }
    }
    if cut_streams.is_empty() {
        return paths;
    }
    let deadline = tokio::time::Instant::now() + SAVE_TIMEOUT;
    let new_bytes = cut_streams
        .iter()
        .map(|(_, kept)| kept.content.len() as u64)
        .sum();
    let number = match in_time(deadline, make_room(boxes, session, new_bytes)).await {
        Ok(seen) => numbers.next_above(seen),
        Err(why) => {
            paths.notices.push(not_kept(&why));
            return paths;
        }
    };
    for (
        stream,
        Kept {
            content,
            cut,
            permits,
        },
    ) in cut_streams
    {
        let path = format!("{KEPT_OUTPUT}/{number}.{}", extension(stream));
        let written = in_time(deadline, boxes.write_file(session, &path, content)).await;
        drop(permits);
        if let Err(why) = written {
            paths.notices.push(not_kept(&why));
            continue;
        }
        paths.notices.push(found_at(&path, cut));
        match stream {
            Stream::Stdout => paths.stdout = Some(path),
            Stream::Stderr => paths.stderr = Some(path),
        }
    }
    paths
}

async fn in_time<T>(
    deadline: tokio::time::Instant,
    request: impl Future<Output = Answer<T>>,
) -> Result<T, String> {
    match tokio::time::timeout_at(deadline, request).await {
        Ok(result) => result.map_err(|error| error.message),
        Err(_) => Err("the box did not answer in time".to_owned()),
    }
}

/// Removes the oldest outputs until the new one fits. Returns the highest number up to [`MAX_NUMBER`].
async fn make_room(boxes: &dyn Boxes, session: &SessionId, new_bytes: u64) -> Answer<u64> {
    let mut outputs = outputs(boxes, session).await?;
    let highest = outputs.range(..=MAX_NUMBER).next_back();
    let highest = highest.map_or(0, |(number, _)| *number);
    let mut bytes: u64 = outputs.values().flatten().map(|(_, size)| size).sum();
    while outputs.len() >= MAX_COMMANDS || bytes.saturating_add(new_bytes) > MAX_BYTES {
        let Some((_, files)) = outputs.pop_first() else {
            break;
        };
        for (path, size) in files {
            boxes.remove(session, &path).await?;
            bytes = bytes.saturating_sub(size);
        }
    }
    Ok(highest)
}

/// The files of each command, with their sizes.
type Outputs = BTreeMap<u64, Vec<(String, u64)>>;

async fn outputs(boxes: &dyn Boxes, session: &SessionId) -> Answer<Outputs> {
    let listed = match boxes.list(session, KEPT_OUTPUT).await {
        Ok(listed) => listed.entries,
        Err(error) if error.code == ErrorCode::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut outputs = Outputs::new();
    for entry in listed {
        if entry.kind == FileKind::File
            && let Some(number) = number_of(&entry.name)
        {
            outputs
                .entry(number)
                .or_default()
                .push((entry.path, entry.size));
        }
    }
    Ok(outputs)
}

fn number_of(name: &str) -> Option<u64> {
    let (number, stream) = name.split_once('.')?;
    if !matches!(stream, "stdout" | "stderr") {
        return None;
    }
    number.parse().ok()
}

fn extension(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

fn found_at(path: &str, cut: bool) -> String {
    let description = if cut {
        format!("the first {} MiB of the output are", MAX_SAVED_BYTES >> 20)
    } else {
        "the whole output is".to_owned()
    };
    format!("{description} in {path}; read it with the read tool, offset and limit")
}

fn not_kept(why: &str) -> String {
    format!("the whole output could not be kept: {why}")
}
