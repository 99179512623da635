//! Verifies that LangBot and the daemon share a directory: LangBot writes a small file, the daemon returns its digest.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use data_encoding::HEXLOWER;
use rustix::fs::{Mode, OFlags, open, openat};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::ActionError;
use crate::error::not_ready;
use crate::params::{is_lower_hex, is_python_space};

const PREFIX: &str = ".langbot-box-volume-probe-";
const MAX_BYTES: u64 = 1024;

/// Blocks. Symlinks are not followed.
pub(crate) fn verify(root: &Path, name: &str) -> Result<Value, ActionError> {
    let unreadable = |error: io::Error| {
        tracing::debug!(%error, "failed to read the probe file of the shared workspace");
        not_ready("Box Runtime cannot read the Core shared Workspace probe")
    };
    let marker = open_marker(root, name).map_err(unreadable)?;
    let metadata = marker.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(not_ready(
            "Box shared Workspace probe is not a regular file",
        ));
    }
    let size = metadata.len();
    if size == 0 || size > MAX_BYTES {
        return Err(not_ready("Box shared Workspace probe has an invalid size"));
    }
    let mut bytes = Vec::new();
    let mut content = marker.take(MAX_BYTES + 1);
    content.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 != size {
        return Err(not_ready(
            "Box shared Workspace probe changed while being verified",
        ));
    }
    let digest = HEXLOWER.encode(&Sha256::digest(&bytes));
    Ok(json!({ "marker_name": name, "sha256": digest, "size": size }))
}

fn open_marker(root: &Path, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(root, flags | OFlags::DIRECTORY, Mode::empty())?;
    // Non-blocking, in case it is a FIFO.
    let flags = flags | OFlags::NONBLOCK;
    Ok(openat(&directory, name, flags, Mode::empty())?.into())
}

/// Checks the name of a probe file.
pub(crate) fn name(value: Option<&Value>) -> Result<&str, ActionError> {
    let name = value
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim_matches(is_python_space);
    let well_formed = name
        .strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == 32 && is_lower_hex(rest));
    if well_formed {
        Ok(name)
    } else {
        Err(not_ready("Invalid Box shared Workspace probe basename"))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::FileType;

    use super::*;

    fn good_name() -> String {
        format!("{PREFIX}{}", "0a".repeat(16))
    }

    #[test]
    fn a_marker_is_digested() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join(good_name()), "hello").expect("marker");
        assert_eq!(
            verify(dir.path(), &good_name()),
            Ok(json!({
                "marker_name": good_name(),
                "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
                "size": 5,
            }))
        );
    }

    #[test]
    fn only_small_regular_files_are_accepted() {
        let dir = tempfile::tempdir().expect("directory");
        let marker = dir.path().join(good_name());
        let refused = |expected: &str| {
            let error = verify(dir.path(), &good_name()).expect_err("refused");
            assert_eq!(error.class(), "BoxReadinessError");
            assert!(error.message().contains(expected), "{error}");
        };
        refused("cannot read");
        std::fs::write(&marker, "").expect("empty");
        refused("invalid size");
        std::fs::write(&marker, [0; 1025]).expect("large");
        refused("invalid size");
        std::fs::remove_file(&marker).expect("removed");
        std::fs::write(dir.path().join("target"), "secret").expect("target");
        std::os::unix::fs::symlink("target", &marker).expect("link");
        refused("cannot read");
        std::fs::remove_file(&marker).expect("removed");
        std::fs::create_dir(&marker).expect("directory");
        refused("not a regular file");
        std::fs::remove_dir(&marker).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &marker,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("pipe");
        refused("not a regular file");
    }

    #[test]
    fn only_names_of_probe_files_are_accepted() {
        let good = Value::from(format!(" {} ", good_name()));
        assert_eq!(name(Some(&good)).expect("good"), good_name());
        for wrong in [
            "x",
            PREFIX,
            "../.langbot-box-volume-probe-00000000000000000000000000000000",
            ".langbot-box-volume-probe-0000000000000000000000000000000G",
            ".langbot-box-volume-probe-0000000000000000000000000000000A",
            ".langbot-box-volume-probe-000000000000000000000000000000000",
        ] {
            assert!(name(Some(&Value::from(wrong))).is_err(), "{wrong}");
        }
        assert!(name(None).is_err());
        assert!(name(Some(&Value::from(7))).is_err());
    }
}
