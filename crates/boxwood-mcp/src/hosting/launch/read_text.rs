//! Reads small regular files from untrusted directories, without following links or blocking on pipes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `None` if there is no regular file.
pub(crate) fn read_text(path: &Path, limit: u64) -> io::Result<Option<String>> {
    let Some(file) = open_regular(path)? else {
        return Ok(None);
    };
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is longer than {limit} bytes"),
        ));
    }
    Ok(Some(text))
}

/// `None` if there is no regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_nothing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Missing, or a link.
fn is_nothing(error: &io::Error) -> bool {
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    let is_missing = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    );
    is_link || is_missing
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        fs::write(&file, "text").expect("writable");
        symlink(&file, directory.path().join("link")).expect("a new link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("pipes need no rights");
        let read = |name: &str, limit| read_text(&directory.path().join(name), limit);
        assert_eq!(read("file", 4).expect("it fits").as_deref(), Some("text"));
        assert!(read("file", 3).is_err());
        for nothing in ["link", "pipe", "missing", "file/below", "."] {
            assert_eq!(
                read(nothing, 100).expect("it is nothing"),
                None,
                "{nothing}"
            );
        }
    }
}
