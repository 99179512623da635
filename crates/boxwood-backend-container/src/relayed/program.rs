//! The init program as a tar archive, which every engine can copy into a container.

use boxwood_init::{PROGRAM, PROGRAM_NAME};

const BLOCK: usize = 512;

/// One executable file owned by root.
pub(super) fn archive() -> Vec<u8> {
    let mut archive = header(PROGRAM_NAME, PROGRAM.len());
    archive.extend_from_slice(PROGRAM);
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    archive
}

/// A ustar header: numbers are octal text, and the checksum field counts as spaces.
fn header(name: &str, size: usize) -> Vec<u8> {
    let mut block = vec![0_u8; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_extracts_the_program() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("archive.tar");
        std::fs::write(&path, archive()).expect("write");
        let status = std::process::Command::new("tar")
            .args(["-x", "-f"])
            .arg(&path)
            .arg("-C")
            .arg(place.path())
            .status()
            .expect("tar");
        assert!(status.success());
        let found = std::fs::read(place.path().join(PROGRAM_NAME)).expect("read");
        assert!(found == PROGRAM);
    }
}
