//! The init program as a tar archive, which every engine can copy into a container.

use std::io;

use boxwood_init::{PROGRAM, PROGRAM_NAME};

/// One executable file owned by root.
pub(super) fn archive() -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(PROGRAM.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, PROGRAM_NAME, PROGRAM)?;
    archive.into_inner()
}
