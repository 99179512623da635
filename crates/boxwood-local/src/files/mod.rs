//! File operations in a box, run by a helper process inside it.

mod tools;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use boxwood_api::{FileEntry, FileKind};
use boxwood_backend::{FileAnswer, FileCall, FileError, FileFault, OpenFor, SpawnError};
use boxwood_init::{Channel, FileFailure, FileReply, FileRequest, FileStat, Program};
use boxwood_sys::mount;
use jiff::Timestamp;
use rustix::io::Errno;

use crate::process::async_fd::AsyncChannel;
use crate::sandbox::LocalBox;

/// Enough to remove a large tree; a slower helper is killed.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) async fn call(sandbox: &LocalBox, call: FileCall) -> Result<FileAnswer, FileError> {
    let path = call.path().to_owned();
    check(&path)?;
    let request = match call {
        FileCall::Tool(tool) => return tools::call(sandbox, tool).await.map(FileAnswer::Tool),
        FileCall::Open { path, how } => match how {
            OpenFor::Read => FileRequest::OpenRead { path },
            OpenFor::CreateNew { mode } => FileRequest::OpenWrite {
                path,
                exclusive: true,
                mode,
            },
            OpenFor::Write { mode } => FileRequest::OpenWrite {
                path,
                exclusive: false,
                mode,
            },
        },
        FileCall::Stat { path, follow } => FileRequest::Stat { path, follow },
        FileCall::List { path, limit } => FileRequest::List { path, limit },
        FileCall::Mkdir { path, parents } => FileRequest::Mkdir { path, parents },
        FileCall::Move {
            from,
            to,
            overwrite,
        } => {
            check(&to)?;
            FileRequest::Move {
                from,
                to,
                overwrite,
            }
        }
        FileCall::Remove { path, recursive } => FileRequest::Remove { path, recursive },
    };
    let (channel, helper_channel) = Channel::pair().map_err(step("open a socket"))?;
    let channel = AsyncChannel::new(channel).map_err(step("open a socket"))?;
    let program = Program::File { request, reply: 0 };
    let helper = sandbox
        .spawn_program(program, vec![OwnedFd::from(helper_channel)])
        .await
        .map_err(not_started)?;
    let reply = tokio::time::timeout(DEADLINE, channel.receive::<FileReply>()).await;
    match reply {
        Ok(Ok((reply, mut fds))) => answer_of(&path, reply, fds.pop()),
        // The helper died without an answer: the box is gone, or it ran out of memory.
        Ok(Err(_)) if helper.ended_with_box().await => Err(FileError::Gone),
        Ok(Err(error)) => Err(step("read the file helper's answer")(error)),
        Err(_elapsed) => {
            helper.kill().await;
            Err(step("finish in time")(io::ErrorKind::TimedOut))
        }
    }
}

fn not_started(error: SpawnError) -> FileError {
    match error {
        SpawnError::Gone => FileError::Gone,
        SpawnError::PidsLimit => FileError::PidsLimit,
        error => step("start the file helper")(io::Error::other(error)),
    }
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> FileError {
    move |source| FileError::Step {
        step: step.to_owned(),
        source: source.into(),
    }
}

fn check(path: &str) -> Result<(), FileError> {
    let text = match path {
        path if !path.starts_with('/') => "the path must be absolute",
        path if path.contains('\0') => "the path must not contain NUL",
        _ => return Ok(()),
    };
    let (path, text) = (path.to_owned(), text.to_owned());
    Err(FileError::Fault {
        fault: FileFault::BadPath,
        path,
        text,
    })
}

fn answer_of(path: &str, reply: FileReply, file: Option<OwnedFd>) -> Result<FileAnswer, FileError> {
    match (reply, file) {
        (FileReply::Opened(stat), Some(file)) => {
            let file = File::from(file);
            // The helper runs among untrusted programs, so its descriptor is checked again.
            if !is_plain(&file).map_err(step("check the opened file"))? {
                return Err(fault(path, FileFailure::NotAFile));
            }
            Ok(FileAnswer::Opened {
                file,
                entry: entry(path.to_owned(), &stat),
            })
        }
        (FileReply::Stat(stat), _) => Ok(FileAnswer::Entry(entry(path.to_owned(), &stat))),
        (FileReply::Entries { entries, truncated }, _) => {
            let base = path.trim_end_matches('/');
            let entries = entries
                .iter()
                .map(|stat| entry(format!("{base}/{}", text(&stat.name)), stat))
                .collect();
            Ok(FileAnswer::Entries { entries, truncated })
        }
        (FileReply::Done, _) => Ok(FileAnswer::Done),
        (FileReply::Failed(failure), _) => Err(fault(path, failure)),
        (FileReply::Opened(_), None) => {
            Err(fault(path, FileFailure::Errno(Errno::IO.raw_os_error())))
        }
    }
}

/// Returns true for a regular file outside procfs, and switches it to blocking reads.
fn is_plain(file: &File) -> io::Result<bool> {
    rustix::io::ioctl_fionbio(file, false)?;
    Ok(file.metadata()?.is_file() && mount::file_system(file)? != mount::PROC)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn entry(path: String, stat: &FileStat) -> FileEntry {
    const TYPE: u32 = 0o170_000;
    let nanoseconds = i32::try_from(stat.modified_nsec).unwrap_or(0);
    // A timestamp out of range is shown as the epoch.
    let modified_at = Timestamp::new(stat.modified_sec, nanoseconds).unwrap_or_default();
    FileEntry {
        name: text(&stat.name),
        path,
        kind: match stat.mode & TYPE {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            _ => FileKind::Other,
        },
        size: stat.size,
        mode: stat.mode & 0o7777,
        modified_at,
        symlink_target: stat.symlink_target.as_deref().map(text),
    }
}

fn fault(path: &str, failure: FileFailure) -> FileError {
    let (fault, text) = match failure {
        FileFailure::NotAFile => (FileFault::NotAFile, "not a regular file".to_owned()),
        FileFailure::Errno(errno) => {
            let fault = match Errno::from_raw_os_error(errno) {
                Errno::NOENT => FileFault::NotFound,
                Errno::EXIST => FileFault::Exists,
                Errno::ACCESS | Errno::PERM => FileFault::Denied,
                Errno::NOTDIR => FileFault::NotADirectory,
                Errno::ISDIR => FileFault::IsADirectory,
                Errno::NOTEMPTY => FileFault::NotEmpty,
                Errno::NOSPC | Errno::DQUOT => FileFault::NoSpace,
                Errno::ROFS => FileFault::ReadOnly,
                Errno::LOOP => FileFault::TooManyLinks,
                Errno::NAMETOOLONG | Errno::INVAL => FileFault::BadPath,
                _ => FileFault::Other,
            };
            (fault, io::Error::from_raw_os_error(errno).to_string())
        }
    };
    FileError::Fault {
        fault,
        path: path.to_owned(),
        text,
    }
}
