//! What programs of a box have open on one file system of the host.
//!
//! Comes in: the numbers of processes. Goes out: the bytes of files that nobody can find any more, and the
//! files that may grow. Never here: names. `/proc` leads to the open file itself, whatever was done to its
//! name.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use boxwood_backend::BeingWritten;
use boxwood_sys::procfs;
use rustix::process::Signal;

/// Descriptors and mappings that one look takes in. A box with more counts as holding everything.
const MOST: usize = 1_000_000;
/// The same where somebody waits for the answer: half a millisecond.
const MOST_AT_ONCE: usize = 500;

/// That the one who opened it may write, in the mode of `/proc/PID/fd/N`.
const MAY_WRITE: u32 = 0o200;

/// What a signal to stop is in the masks of `/proc/PID/status`.
const STOP: u64 = 1 << (Signal::STOP.as_raw() - 1);

/// Each file once, however many programs have it open.
pub(crate) fn unlinked_bytes(init: i32, device: u64) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut looked_at = 0;
    for pid in family(init) {
        // A thread may have descriptors of its own, which its process does not show.
        let threads = threads(pid)
            .into_iter()
            .map(|thread| thread.path.join("fd"));
        let mapped = PathBuf::from(format!("/proc/{pid}/map_files"));
        for directory in threads.chain([mapped]) {
            // A program that has just ended holds nothing; mappings are root's to look at.
            let Ok(entries) = fs::read_dir(directory) else {
                continue;
            };
            for entry in entries.flatten() {
                looked_at += 1;
                if looked_at > MOST {
                    return u64::MAX;
                }
                let Ok(open) = fs::metadata(entry.path()) else {
                    continue;
                };
                let unlinked = open.is_file() && open.nlink() == 0 && open.dev() == device;
                if unlinked && seen.insert(open.ino()) {
                    bytes += open.blocks() * 512;
                }
            }
        }
    }
    bytes
}

/// Files that threads of `pids` have open for writing which are at work or were, each once.
pub(crate) fn being_written(
    pids: impl IntoIterator<Item = i32>,
    device: u64,
    watched: &mut HashSet<i32>,
) -> BeingWritten {
    let mut found = BeingWritten::default();
    let mut left = MOST_AT_ONCE;
    let threads = pids.into_iter().flat_map(threads);
    for thread in threads {
        if !watched.contains(&thread.number) {
            if !thread.is_at_work() {
                continue;
            }
            watched.insert(thread.number);
        }
        if written_by(&thread, device, &mut left, &mut found.bytes).is_none()
            && let Some(time) = thread.processor_time()
        {
            found.hidden.insert(thread.number, time);
        }
    }
    found
}

/// `None` where it has more open than is left to look at, or keeps it to itself. The dead have nothing.
fn written_by(
    thread: &Thread,
    device: u64,
    left: &mut usize,
    bytes: &mut HashMap<u64, u64>,
) -> Option<()> {
    let directory = thread.path.join("fd");
    // Kernels before 6.2 do not tell how many there are.
    let count = fs::metadata(&directory).map_or(0, |facts| facts.len());
    if usize::try_from(count).is_ok_and(|count| count > *left) {
        return None;
    }
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(()),
    };
    for entry in entries {
        *left = left.checked_sub(1)?;
        let Ok(path) = entry.map(|entry| entry.path()) else {
            continue;
        };
        let may_write = |link: fs::Metadata| link.mode() & MAY_WRITE != 0;
        if !fs::symlink_metadata(&path).is_ok_and(may_write) {
            continue;
        }
        if let Ok(open) = fs::metadata(&path)
            && open.is_file()
            && open.dev() == device
        {
            bytes.insert(open.ino(), open.blocks() * 512);
        }
    }
    Some(())
}

struct Thread {
    number: i32,
    /// In `/proc`.
    path: PathBuf,
}

impl Thread {
    /// Whether it runs, wants to, or waits for a disk. Whoever stands still or sleeps writes nothing.
    fn is_at_work(&self) -> bool {
        let stat = procfs::text(self.path.join("stat")).unwrap_or_default();
        // Behind the name, in which anything may stand.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|state| state.starts_with(['R', 'D']))
    }

    /// Whether it has the signal to stop, or took it.
    fn is_told_to_stop(&self) -> bool {
        let status = procfs::text(self.path.join("status"));
        is_told_to_stop(&status.unwrap_or_default())
    }

    /// For how long it has had a processor.
    fn processor_time(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.path.join("schedstat")).ok()?;
        let nanoseconds = text.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    }
}

fn threads(pid: i32) -> Vec<Thread> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let path = entry.path();
        Some(Thread { number, path })
    });
    threads.collect()
}

/// Those below `init` who have the signal to stop, or took it. Whoever has not may begin to write anew.
pub(crate) fn told_to_stop(init: i32) -> Vec<i32> {
    let mut told = family(init);
    told.retain(|pid| threads(*pid).iter().any(Thread::is_told_to_stop));
    told
}

fn is_told_to_stop(status: &str) -> bool {
    status.lines().any(|line| match line.split_once(":\t") {
        Some(("State", state)) => state.starts_with('T'),
        Some(("SigPnd" | "ShdPnd", mask)) => {
            u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & STOP != 0)
        }
        _ => false,
    })
}

/// The process and all its descendants: in a box, everybody's forefather is its first process.
fn family(first: i32) -> Vec<i32> {
    let mut found = vec![first];
    let mut at = 0;
    while at < found.len() {
        let threads = threads(found[at]);
        at += 1;
        for thread in threads {
            let children = fs::read_to_string(thread.path.join("children")).unwrap_or_default();
            let children = children.split_whitespace();
            found.extend(children.filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_without_a_name_is_found_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        let mut file = fs::File::create(&path).expect("a file");
        file.write_all(&vec![1; 3 << 20]).expect("written");
        file.sync_all().expect("on its way");
        let device = file.metadata().expect("facts").dev();
        let ourselves = i32::try_from(std::process::id()).expect("a pid");
        let before = unlinked_bytes(ourselves, device);
        fs::remove_file(&path).expect("removed");
        let again = file.try_clone().expect("a duplicate");
        let found = unlinked_bytes(ourselves, device).saturating_sub(before);
        assert!(found >= 3 << 20, "{found} bytes");
        assert!(found < 6 << 20, "counted twice: {found} bytes");
        drop((file, again));
        assert!(unlinked_bytes(ourselves, device) < before + (3 << 20));
    }

    #[test]
    fn only_what_may_be_written_to_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        fs::write(&path, vec![1; 1 << 20]).expect("written");
        let inode = fs::metadata(&path).expect("facts").ino();
        let device = fs::metadata(&path).expect("facts").dev();
        let ourselves = i32::try_from(std::process::id()).expect("a pid");
        let found = || being_written([ourselves], device, &mut HashSet::new());
        let reading = fs::File::open(&path).expect("opened");
        assert_eq!(found().bytes.get(&inode), None);
        let writing = fs::File::options().append(true).open(&path);
        let mut writing = writing.expect("opened");
        let before = found().bytes[&inode];
        writing.write_all(&vec![1; 3 << 20]).expect("written");
        assert!(found().bytes[&inode] >= before + (3 << 20));
        assert_eq!(
            being_written([ourselves], u64::MAX, &mut HashSet::new()),
            BeingWritten::default()
        );
        let many: Vec<_> = (0..MOST_AT_ONCE).map(|_| reading.try_clone()).collect();
        assert!(many.iter().all(Result::is_ok), "too few descriptors");
        let found = found();
        assert!(found.hidden.values().any(|time| *time > Duration::ZERO));
    }

    #[test]
    fn a_signal_to_stop_shows_until_it_is_taken_and_then_the_state_does() {
        let check = |status: &str, expected| {
            assert_eq!(is_told_to_stop(status), expected, "{status}");
        };
        check(
            "Name:\tT\nState:\tR (running)\nSigPnd:\t0000000000000000\n",
            false,
        );
        check("Name:\ta\nState:\tT (stopped)\n", true);
        check("State:\tR (running)\nSigPnd:\t0000000000040000\n", true);
        check("State:\tD (disk sleep)\nShdPnd:\t0000000000040100\n", true);
        check("State:\tR (running)\nSigBlk:\t0000000000040000\n", false);
        check("", false);
    }
}
