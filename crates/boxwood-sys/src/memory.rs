//! Memory files, and memory that is needed only during startup.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// A memory file with this content that cannot be changed any more.
pub fn sealed_file(name: &str, flags: MemfdFlags, bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let memfd = memfd_create(
        name,
        flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&memfd, rest)?;
        rest = &rest[written..];
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&memfd, seals)?;
    Ok(memfd)
}

/// The whole content of a file, independent of its offset, which is shared with other holders of the descriptor.
/// Fails with `FileTooLarge` if it has more than `limit` bytes.
pub fn read_whole(file: impl AsFd, limit: u64) -> io::Result<Vec<u8>> {
    let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(u64::MAX);
    if size > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0_u8; usize::try_from(size).map_err(io::Error::other)?];
    let mut offset = 0;
    while offset < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[offset..], offset as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => offset += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// Releases free heap pages, and pages of the program itself, which are read again from the page cache when
/// they are used.
pub fn release_unused_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer, and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
    for (start, length) in own_program() {
        // SAFETY: the range is a private mapping of a file that is never written to, so its pages read the
        // same afterwards; only a debugger writes there. An error changes nothing.
        unsafe {
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
}

/// The address ranges of the program's code and constants.
fn own_program() -> Vec<(usize, usize)> {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = program.to_str().unwrap_or_default();
    maps.lines()
        .filter_map(|line| unwritten(program, line))
        .collect()
}

/// Start and length if the line of `/proc/self/maps` is a part of `program` that is never written to: its
/// code, or the constants at its beginning. Constants after the code were relocated by the loader.
fn unwritten(program: &str, line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, access, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let address = |text| usize::from_str_radix(text, 16).ok();
    if access != "r-xp" && (access != "r--p" || address(offset)? != 0) {
        return None;
    }
    if line.split_once('/')?.1 != program.strip_prefix('/')? {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (address(start)?, address(end)?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_only_parts_are_found() {
        let program = "/opt/my tools/boxwood";
        let found = |access: &str, offset: &str, of: &str| {
            let line = format!("55d0-5700 {access} {offset} fe:00 101    {program}");
            unwritten(of, &line)
        };
        let all = Some((0x55d0, 0x130));
        assert_eq!(found("r-xp", "00813000", program), all);
        assert_eq!(found("r--p", "00000000", program), all);
        assert_eq!(found("r--p", "016f3000", program), None, "the loader's");
        assert_eq!(found("rw-p", "00000000", program), None);
        assert_eq!(found("r-xp", "00813000", "/opt/boxwood"), None);
        assert_eq!(
            unwritten(program, "7f00-7f10 r-xp 0 00:00 0   [vdso]"),
            None
        );
    }

    #[test]
    fn the_program_keeps_running_after_its_pages_are_released() {
        assert!(!own_program().is_empty(), "a program has code");
        release_unused_pages();
        let numbers: Vec<String> = (0..1000).map(|number| format!("{number}")).collect();
        assert_eq!(numbers.concat().len(), 2890);
    }
}
