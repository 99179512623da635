//! One file operation, done by a fork of init.
//!
//! The fork runs in the box with the uid and restrictions of commands, so a path cannot reach anything that a
//! command could not reach. No path checks are needed.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use boxwood_init::{Channel, FileFailure, FileReply, FileRequest, FileStat, Identity};
use boxwood_sys::clone::{self, exit_now};
use boxwood_sys::mount;
use rustix::fs::{CWD, RenameFlags};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::serve::supervisor::close_all_but;

/// Starts the operation. Its result is sent to `reply`.
pub(crate) fn start(
    request: &FileRequest,
    reply: BorrowedFd<'_>,
    identity: Identity,
) -> io::Result<i32> {
    // SAFETY: init has one thread.
    if let Some(pid) = unsafe { clone::plain_fork() }? {
        return Ok(pid);
    }
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(reply, 10) else {
        exit_now(1)
    };
    // A copy of a pipe's write end that stays open would keep its reader from seeing end of file.
    close_all_but(&[&socket]);
    let channel = Channel::from(socket);
    if become_command(identity).is_err() {
        exit_now(1);
    }
    let (answer, file) = match work(request) {
        Ok(done) => done,
        Err(failure) => (FileReply::Failed(failure), None),
    };
    let fd = file.as_ref().map(AsFd::as_fd);
    let sent = channel.send(&answer, fd.as_slice());
    exit_now(i32::from(sent.is_err()))
}

/// Takes the commands' uid and drops init's capabilities. Commands lose them at `execve`, which this process
/// never calls.
pub(crate) fn become_command(identity: Identity) -> rustix::io::Result<()> {
    let _ = rustix::thread::set_name(c"boxwood-file");
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if !identity.single_uid {
        let (uid, gid) = (
            Uid::from_raw(identity.command_uid),
            Gid::from_raw(identity.command_gid),
        );
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    // The uid change has reset this to the host's `fs.suid_dumpable`.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}

type Outcome = Result<(FileReply, Option<OwnedFd>), FileFailure>;

fn work(request: &FileRequest) -> Outcome {
    match request {
        FileRequest::OpenRead { path } => open(path, OpenOptions::new().read(true)),
        FileRequest::OpenWrite {
            path,
            exclusive,
            mode,
        } => open(
            path,
            OpenOptions::new()
                .write(true)
                .create(!exclusive)
                .create_new(*exclusive)
                .truncate(!exclusive)
                .mode(mode & 0o777),
        ),
        FileRequest::Stat { path, follow } => {
            let metadata = if *follow {
                fs::metadata(path)
            } else {
                fs::symlink_metadata(path)
            };
            let metadata = metadata.map_err(errno)?;
            Ok((FileReply::Stat(stat_of(Path::new(path), &metadata)), None))
        }
        FileRequest::List { path, limit } => list(path, *limit),
        FileRequest::Mkdir { path, parents } => {
            let mut builder = fs::DirBuilder::new();
            builder
                .recursive(*parents)
                .mode(0o755)
                .create(path)
                .map_err(errno)?;
            Ok((FileReply::Done, None))
        }
        FileRequest::Move {
            from,
            to,
            overwrite,
        } => {
            let flags = if *overwrite {
                RenameFlags::empty()
            } else {
                RenameFlags::NOREPLACE
            };
            rustix::fs::renameat_with(CWD, from.as_str(), CWD, to.as_str(), flags)
                .map_err(|error| errno(error.into()))?;
            Ok((FileReply::Done, None))
        }
        FileRequest::Remove { path, recursive } => remove(path, *recursive),
    }
}

fn open(path: &str, options: &mut OpenOptions) -> Outcome {
    // Must neither block on a FIFO nor acquire a controlling terminal.
    let options = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => FileFailure::NotAFile,
            _ => errno(error),
        })?;
    let metadata = file.metadata().map_err(errno)?;
    let kind = mount::file_system(&file).map_err(|error| errno(error.into()))?;
    // The daemon reads and writes the descriptor, and procfs files act on the process that does.
    if !metadata.is_file() || kind == mount::PROC {
        return Err(if metadata.is_dir() {
            FileFailure::Errno(libc::EISDIR)
        } else {
            FileFailure::NotAFile
        });
    }
    let stat = stat_of(Path::new(path), &metadata);
    Ok((FileReply::Opened(stat), Some(file.into())))
}

fn list(path: &str, limit: usize) -> Outcome {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(errno)? {
        names.push(entry.map_err(errno)?.file_name());
    }
    names.sort_unstable();
    let truncated = names.len() > limit;
    let entries = names
        .iter()
        .take(limit)
        .filter_map(|name| {
            let path = Path::new(path).join(name);
            // Skip entries removed since the listing.
            let metadata = fs::symlink_metadata(&path).ok()?;
            Some(stat_of(&path, &metadata))
        })
        .collect();
    Ok((FileReply::Entries { entries, truncated }, None))
}

fn remove(path: &str, recursive: bool) -> Outcome {
    let metadata = fs::symlink_metadata(path).map_err(errno)?;
    match (metadata.is_dir(), recursive) {
        (false, _) => fs::remove_file(path),
        (true, false) => fs::remove_dir(path),
        (true, true) => boxwood_sys::tree::remove(Path::new(path)),
    }
    .map_err(errno)?;
    Ok((FileReply::Done, None))
}

fn stat_of(path: &Path, metadata: &Metadata) -> FileStat {
    let symlink_target = metadata
        .is_symlink()
        .then(|| fs::read_link(path).ok())
        .flatten()
        .map(|target| target.as_os_str().as_bytes().to_vec());
    FileStat {
        name: path.file_name().map_or(&b"/"[..], OsStr::as_bytes).to_vec(),
        mode: metadata.mode(),
        size: metadata.len(),
        modified_sec: metadata.mtime(),
        modified_nsec: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        symlink_target,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "fits `map_err`")]
fn errno(error: io::Error) -> FileFailure {
    FileFailure::Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
