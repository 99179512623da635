//! What `/proc` says of a process.

use std::path::Path;
use std::{fs, io};

/// The text of a file about somebody; an error when there is nobody.
///
/// A program chooses its own name, of any bytes. Whatever is no text in it is replaced, so that nobody is
/// overlooked because of a name.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_any_name_is_told_of() {
        let told = std::thread::spawn(|| {
            rustix::thread::set_name(c"\xff\xfe) T").expect("a name");
            ["stat", "status"].map(|file| text(format!("/proc/thread-self/{file}")))
        });
        let [stat, status] = told.join().expect("no panic");
        let stat = stat.expect("it runs");
        let (_, behind) = stat.rsplit_once(") ").expect("a name in brackets");
        assert!(behind.starts_with('R'), "{stat}");
        assert!(status.expect("it runs").contains("\nState:\tR"));
    }
}
