//! What the process holds and does not need.

/// Gives back what only the start of the daemon needed: heap pages that hold nothing any more, and
/// pages of the program itself, which come back from the page cache when they are next executed.
pub fn release_unused_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer, and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
    if let Some((start, length)) = own_code() {
        // SAFETY: the range is a private mapping of a file, executable and never written to, so that
        // its pages read the same afterwards. Failing changes nothing.
        unsafe {
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
}

/// Where the program's code is mapped.
fn own_code() -> Option<(usize, usize)> {
    let program = std::fs::read_link("/proc/self/exe").ok()?;
    let program = program.to_str()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| code_of(program, line))
}

/// Start and length, where the line of `/proc/self/maps` is the code of `program`.
fn code_of(program: &str, line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    if access != "r-xp" || line.split_once('/')?.1 != program.strip_prefix('/')? {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_own_code_is_found() {
        let code = "55d0-5700 r-xp 00813000 fe:00 101    /opt/my tools/boxwood";
        let found = code_of("/opt/my tools/boxwood", code);
        assert_eq!(found, Some((0x55d0, 0x130)));
        assert_eq!(code_of("/opt/boxwood", code), None);
        let data = code.replace("r-xp", "rw-p");
        assert_eq!(code_of("/opt/my tools/boxwood", &data), None);
        assert_eq!(
            code_of("/opt/boxwood", "7f00-7f10 r-xp 0 00:00 0   [vdso]"),
            None
        );
    }

    #[test]
    fn the_program_runs_on_without_its_pages() {
        assert!(own_code().is_some(), "a program has code");
        release_unused_pages();
        let numbers: Vec<u32> = (0..1000).collect();
        assert_eq!(numbers.iter().sum::<u32>(), 499_500);
    }
}
