//! A stream of bytes in a memory file that survives the daemon, because init holds it too.
//!
//! The file is open twice, and the kernel keeps a position for each description: that of the writer is
//! the number of bytes appended, that of the reader the number of bytes handed out. A position changes
//! atomically, so a killed daemon leaves a consistent journal. Bytes after the writer's position belong
//! to an incomplete write and are overwritten.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fallocate, fchmod,
    fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, open, seek, tell,
};
use rustix::io::{Errno, pread, pwrite};

use crate::admission::{Budget, Held};
use crate::session::activity::lock;

/// Memory is freed in steps of this size, a multiple of every page size.
const STEP_BYTES: u64 = 64 * 1024;

pub(crate) struct Journal {
    writer: Arc<OwnedFd>,
    reader: Arc<OwnedFd>,
    /// Copies of the kernel's positions, which only this process changes.
    end: AtomicU64,
    delivered: AtomicU64,
    start: AtomicU64,
    /// End of the hole in the middle.
    hole: AtomicU64,
    /// Counts unread bytes against the budget, if there is one.
    held: Option<Mutex<Held>>,
}

impl Journal {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let writer = memfd_create(name, flags)?;
        let reader = reopen(writer.as_fd())?;
        Ok(Self::of(Arc::new(writer), Arc::new(reader), 0))
    }

    /// A journal of an earlier daemon.
    pub(crate) fn from_files(writer: OwnedFd, reader: OwnedFd) -> io::Result<Self> {
        let (end, delivered) = (end_of(&writer)?, tell(&reader)?);
        // Through a third description, because seeking changes the position.
        let start = match seek(reopen(writer.as_fd())?, SeekFrom::Data(0)) {
            Ok(start) => start.min(end),
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        if delivered > end {
            return Err(invalid_data(
                "the read position of the journal is after its end",
            ));
        }
        Ok(Self {
            delivered: AtomicU64::new(delivered),
            start: AtomicU64::new(start),
            ..Self::of(Arc::new(writer), Arc::new(reader), end)
        })
    }

    /// A journal that is read once at the end, so that it needs no position for reading.
    pub(crate) fn once(name: &str) -> io::Result<Self> {
        let file = Arc::new(memfd_create(name, MemfdFlags::CLOEXEC)?);
        Ok(Self::of(Arc::clone(&file), file, 0))
    }

    /// The same, of an earlier daemon.
    pub(crate) fn from_file(file: OwnedFd) -> io::Result<Self> {
        let end = end_of(&file)?;
        let file = Arc::new(file);
        Ok(Self::of(Arc::clone(&file), file, end))
    }

    fn of(writer: Arc<OwnedFd>, reader: Arc<OwnedFd>, end: u64) -> Self {
        Self {
            writer,
            reader,
            end: AtomicU64::new(end),
            delivered: AtomicU64::new(0),
            start: AtomicU64::new(0),
            hole: AtomicU64::new(0),
            held: None,
        }
    }

    /// Counts unread bytes against the budget. Bytes kept for replay have a limit of their own.
    pub(crate) fn counted(mut self, budget: &Budget) -> Self {
        self.held = Some(Mutex::new(budget.hold()));
        self.count();
        self
    }

    fn count(&self) {
        if let Some(held) = &self.held {
            let waiting = usize::try_from(self.undelivered()).unwrap_or(usize::MAX);
            lock(held).set(waiting);
        }
    }

    /// The description of a journal that is read once.
    pub(crate) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.writer)
    }

    /// Both descriptions, in the order of [`Journal::from_files`].
    pub(crate) fn files(&self) -> [Arc<OwnedFd>; 2] {
        [Arc::clone(&self.writer), Arc::clone(&self.reader)]
    }

    /// For moving bytes in. Call [`Journal::update_end`] afterwards.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// For moving bytes out. Call [`Journal::update_delivered`] afterwards.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Counts the bytes of a move. After a failure only the kernel knows their number.
    pub(crate) fn update_end(&self, moved: &io::Result<usize>) {
        let end = match moved {
            Ok(0) => return,
            Ok(bytes) => Ok(self.end().saturating_add(*bytes as u64)),
            Err(_) => tell(&*self.writer),
        };
        if let Ok(end) = end {
            self.end.store(end, Ordering::Release);
            self.count();
        }
    }

    /// Reads the position from the kernel, which is right even after a cancelled move.
    pub(crate) fn update_delivered(&self) {
        if let Ok(delivered) = tell(&*self.reader) {
            self.delivered.store(delivered, Ordering::Release);
            self.count();
        }
    }

    /// Number of all appended bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Number of all bytes handed out.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Acquire)
    }

    pub(crate) fn undelivered(&self) -> u64 {
        self.end().saturating_sub(self.delivered())
    }

    /// Offset of the oldest byte that is kept.
    pub(crate) fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Number of bytes that are kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.end().saturating_sub(self.start())
    }

    pub(crate) fn set_delivered(&self, offset: u64) -> io::Result<()> {
        seek(&*self.reader, SeekFrom::Start(offset))?;
        self.delivered.store(offset, Ordering::Release);
        self.count();
        Ok(())
    }

    /// Appends all bytes or, after an error, none. One caller at a time.
    pub(crate) fn append(&self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut at = self.end();
        while !bytes.is_empty() {
            match pwrite(&*self.writer, bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        seek(&*self.writer, SeekFrom::Start(at))?;
        self.end.store(at, Ordering::Release);
        self.count();
        Ok(at)
    }

    /// Reads bytes from `offset` on into `buffer`, and returns their number.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if offset < self.start() {
            return Err(invalid_data(
                "the requested bytes of the journal are no longer kept",
            ));
        }
        let available = self.end().saturating_sub(offset);
        let length = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut filled = 0;
        while filled < length {
            match pread(
                &*self.reader,
                &mut buffer[filled..length],
                offset + filled as u64,
            ) {
                Ok(0) => return Err(invalid_data("the journal is shorter than its position")),
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Returns at most `max_bytes` bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, max_bytes: usize) -> io::Result<Vec<u8>> {
        let available = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; max_bytes.min(available)];
        let read = self.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Returns the last bytes that are kept, at most `max_bytes`.
    pub(crate) fn last(&self, max_bytes: u64) -> io::Result<Vec<u8>> {
        loop {
            let from = self.end().saturating_sub(max_bytes).max(self.start());
            let read = self.read(from, usize::MAX);
            // Another thread may free bytes meanwhile.
            let freed = usize::try_from(self.start().saturating_sub(from)).unwrap_or(usize::MAX);
            match read {
                Ok(mut bytes) if freed < bytes.len() => {
                    bytes.drain(..freed);
                    return Ok(bytes);
                }
                read if freed == 0 => return read,
                // All of them were freed.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Frees the memory of older bytes, rounded down to a step.
    pub(crate) fn forget_before(&self, offset: u64) {
        let new_start = offset.min(self.end()) / STEP_BYTES * STEP_BYTES;
        let start = self.start();
        if new_start <= start {
            return;
        }
        // First, so that no caller reads freed bytes.
        self.start.store(new_start, Ordering::Release);
        if !self.punch(start, new_start) {
            self.start.store(start, Ordering::Release);
        }
    }

    /// Frees a part in the middle, which reads as zeros then.
    pub(crate) fn forget_between(&self, from: u64, until: u64) {
        let from = from.div_ceil(STEP_BYTES) * STEP_BYTES;
        let from = from.max(self.hole.load(Ordering::Acquire));
        let until = until.min(self.end()) / STEP_BYTES * STEP_BYTES;
        if from < until && self.punch(from, until) {
            self.hole.store(until, Ordering::Release);
        }
    }

    fn punch(&self, from: u64, until: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&*self.writer, flags, from, until - from) {
            Ok(()) => true,
            // Retried with the next step.
            Err(error) => {
                tracing::warn!(%error, "failed to free old output of a program");
                false
            }
        }
    }

    /// Nothing can be appended any more, not by the next daemon either.
    pub(crate) fn seal(&self) -> io::Result<()> {
        // Removes an incomplete write.
        ftruncate(&*self.writer, self.end())?;
        Ok(fcntl_add_seals(&*self.writer, SealFlags::GROW)?)
    }

    /// Frees the content. The mode of the file tells the next daemon; it has no other effect, because the
    /// file has no name.
    pub(crate) fn discard(&self) -> io::Result<()> {
        fchmod(&*self.writer, Mode::empty())?;
        ftruncate(&*self.writer, 0)?;
        if let Some(held) = &self.held {
            lock(held).give_back();
        }
        Ok(())
    }

    pub(crate) fn is_discarded(&self) -> bool {
        fstat(&*self.writer).is_ok_and(|file| Mode::from_raw_mode(file.st_mode).is_empty())
    }

    pub(crate) fn is_sealed(&self) -> bool {
        fcntl_get_seals(&*self.writer).is_ok_and(|seals| seals.contains(SealFlags::GROW))
    }
}

fn end_of(file: &OwnedFd) -> io::Result<u64> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Err(invalid_data("a journal is not a file"));
    }
    Ok(tell(file)?)
}

/// Opens another description of the file, for reading.
fn reopen(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

pub(crate) fn invalid_data(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the next daemon gets: descriptors of the same descriptions, sent by the one that holds
    /// them.
    fn adopted(journal: &Journal) -> Journal {
        let [writer, reader] = journal
            .files()
            .map(|file| file.try_clone().expect("a duplicate"));
        Journal::from_files(writer, reader).expect("a journal")
    }

    fn blocks(journal: &Journal) -> u64 {
        let stat = fstat(journal.writer()).expect("a file");
        u64::try_from(stat.st_blocks).expect("a count")
    }

    #[test]
    fn bytes_are_read_by_their_offset() {
        let journal = Journal::new("test").expect("a journal");
        assert_eq!(journal.append(b"hello ").expect("taken"), 6);
        assert_eq!(journal.append(b"world").expect("taken"), 11);
        assert_eq!(journal.read(4, 3).expect("kept"), b"o w");
        assert_eq!(journal.read(6, 100).expect("kept"), b"world");
        assert_eq!(journal.read(11, 100).expect("nothing yet"), b"");
        assert_eq!(journal.delivered(), 0);
        journal.set_delivered(6).expect("moved");
        assert_eq!(journal.undelivered(), 5);
    }

    #[test]
    fn undelivered_bytes_count_against_the_budget() {
        let budget = Budget::new(1 << 30);
        let journal = Journal::new("test").expect("a journal").counted(&budget);
        journal.append(&vec![7; 200_000]).expect("taken");
        assert_eq!(budget.used(), 200_000);
        journal.set_delivered(150_000).expect("moved");
        assert_eq!(budget.used(), 50_000);
        let next = adopted(&journal).counted(&budget);
        drop(journal);
        assert_eq!(budget.used(), 50_000);
        next.discard().expect("given up");
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn both_positions_survive_their_daemon() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(b"0123456789").expect("taken");
        journal.set_delivered(4).expect("moved");
        // As after SIGKILL: the descriptors of the killed are closed, the duplicates are not.
        let [writer, reader] = journal
            .files()
            .map(|file| file.try_clone().expect("a duplicate"));
        drop(journal);
        let next = Journal::from_files(writer, reader).expect("a journal");
        assert_eq!((next.start(), next.delivered(), next.end()), (0, 4, 10));
        next.append(b"ab").expect("taken");
        assert_eq!(next.read(4, 100).expect("kept"), b"456789ab");
    }

    #[test]
    fn positions_survive_a_process_that_is_killed() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(b"first ").expect("taken");
        // Another process moves the shared position and dies in the middle of its work.
        let [writer, _] = journal.files();
        let stdout = std::process::Stdio::from(writer.try_clone().expect("a duplicate"));
        let mut child = std::process::Command::new("sh")
            .args(["-c", "printf second; kill -9 $$"])
            .stdout(stdout)
            .spawn()
            .expect("a child");
        child.wait().expect("its end");
        let next = adopted(&journal);
        assert_eq!(next.end(), 12);
        assert_eq!(next.read(0, 100).expect("kept"), b"first second");
    }

    #[test]
    fn an_incomplete_write_is_overwritten() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(b"whole").expect("taken");
        // Written, but the daemon was killed before it could say so.
        pwrite(journal.writer(), b"torn input", 5).expect("written");
        let next = adopted(&journal);
        assert_eq!(next.end(), 5);
        assert_eq!(next.read(0, 100).expect("kept"), b"whole");
        next.append(b"!").expect("taken");
        assert_eq!(next.read(0, 100).expect("kept"), b"whole!");
    }

    #[test]
    fn freed_bytes_take_no_memory() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(&vec![b'x'; 1024 * 1024]).expect("taken");
        let full = blocks(&journal);
        assert!(full * 512 >= 1024 * 1024);
        journal.forget_before(1024 * 1024 - 10);
        let start = journal.start();
        assert_eq!(start, 1024 * 1024 - STEP_BYTES);
        assert!(blocks(&journal) * 512 <= STEP_BYTES, "memory was freed");
        assert!(journal.read(start - 1, 1).is_err());
        assert_eq!(journal.read(start, 10).expect("kept"), b"xxxxxxxxxx");
        // The next daemon finds the same start.
        let next = adopted(&journal);
        assert_eq!((next.start(), next.end()), (start, 1024 * 1024));
        next.forget_before(1024 * 1024);
        assert_eq!(adopted(&next).start(), 1024 * 1024);
    }

    #[test]
    fn the_last_bytes_are_read_as_far_as_they_are_kept() {
        let journal = Journal::new("test").expect("a journal");
        let bytes = b"xyz".repeat(100_001);
        journal.append(&bytes).expect("taken");
        assert_eq!(journal.last(4).expect("kept"), b"zxyz");
        assert!(journal.last(1 << 30).expect("kept") == bytes);
        journal.forget_before(200_000);
        let start = usize::try_from(journal.start()).expect("small");
        assert!(start > 0 && journal.last(1 << 30).expect("kept") == bytes[start..]);
    }

    #[test]
    fn the_last_bytes_are_read_while_older_ones_are_freed() {
        const KEPT: u64 = 128 * 1024;
        let journal = Journal::new("test").expect("a journal");
        let chunk = vec![b'x'; 64 * 1024];
        journal.append(&chunk).expect("taken");
        std::thread::scope(|threads| {
            let writing = threads.spawn(|| {
                for _ in 0..1000 {
                    let end = journal.append(&chunk).expect("taken");
                    journal.forget_before(end.saturating_sub(KEPT));
                }
            });
            while !writing.is_finished() {
                let last = journal.last(KEPT).expect("kept");
                assert!(!last.is_empty() && !last.contains(&0), "freed bytes");
            }
        });
    }

    #[test]
    fn a_sealed_journal_takes_nothing_in() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(b"all").expect("taken");
        pwrite(journal.writer(), b"torn", 3).expect("written");
        assert!(!journal.is_sealed());
        journal.seal().expect("sealed");
        let next = adopted(&journal);
        assert!(next.is_sealed());
        assert!(next.append(b"more").is_err());
        assert_eq!(next.read(0, 100).expect("kept"), b"all");
    }

    #[test]
    fn files_that_are_no_journal_are_refused() {
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(Journal::from_files(writer.into(), reader.into()).is_err());
        let one = Journal::new("one").expect("a journal");
        one.append(b"1").expect("taken");
        one.set_delivered(1).expect("moved");
        let two = Journal::new("two").expect("a journal");
        let writer = two.files()[0].try_clone().expect("a duplicate");
        let reader = one.files()[1].try_clone().expect("a duplicate");
        assert!(Journal::from_files(writer, reader).is_err());
    }

    proptest! {
        #[test]
        fn a_journal_is_what_went_in(
            steps in prop::collection::vec((0_usize..90_000, 0_u64..400_000, any::<bool>()), 1..12),
        ) {
            let mut journal = Journal::new("test").expect("a journal");
            let mut model: Vec<u8> = Vec::new();
            let mut forgotten = 0;
            for (number, (length, forget, crash)) in steps.into_iter().enumerate() {
                let bytes = vec![u8::try_from(number).expect("small"); length];
                journal.append(&bytes).expect("taken");
                model.extend_from_slice(&bytes);
                journal.forget_before(forget);
                forgotten = forgotten.max(forget.min(journal.end()));
                prop_assert!(journal.start() <= forgotten);
                prop_assert!(journal.start() + STEP_BYTES > forgotten);
                if crash {
                    journal = adopted(&journal);
                }
                let start = journal.start();
                let kept = journal.read(start, model.len()).expect("kept");
                let from = usize::try_from(start).expect("small");
                prop_assert!(kept == model[from..]);
            }
        }
    }
}
