//! Reads files of `/proc`.

use std::path::Path;
use std::{fs, io};

/// The text of a file. Invalid UTF-8 is replaced: a program can choose any bytes as its name, and must not be
/// skipped because of it.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_name_that_is_not_utf8_is_read() {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_name(c"\xff\xfe) T").expect("a name");
            ["stat", "status"].map(|file| text(format!("/proc/thread-self/{file}")))
        });
        let [stat, status] = thread.join().expect("no panic");
        let stat = stat.expect("it runs");
        let (_, behind) = stat.rsplit_once(") ").expect("a name in brackets");
        assert!(behind.starts_with('R'), "{stat}");
        assert!(status.expect("it runs").contains("\nState:\tR"));
    }
}
