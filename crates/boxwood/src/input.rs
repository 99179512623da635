//! Reads files that are named on the command line. `-` is stdin.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::failure::{Failure, Outcome};
use crate::flags::size_text;

pub(crate) fn read(path: &Path, max_bytes: u64) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more byte shows that the limit is exceeded.
    let limit = max_bytes + 1;
    let outcome = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    outcome.map_err(|error| Failure::unreadable(path, error))?;
    if bytes.len() as u64 > max_bytes {
        let max = size_text(max_bytes);
        return Err(Failure::usage(format!(
            "{} is longer than {max}",
            name(path)
        )));
    }
    Ok(bytes)
}

pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Outcome<String> {
    String::from_utf8(read(path, max_bytes)?)
        .map_err(|_| Failure::usage(format!("{} is not UTF-8 text", name(path))))
}

/// The file as named in errors.
pub(crate) fn name(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "stdin".to_owned(),
        _ => format!("`{}`", path.display()),
    }
}
