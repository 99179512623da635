//! Who this process is among those that make boxes on this host.
//!
//! A daemon is known by its state directory: the next one on the same directory finds what a killed
//! one left, and two never run at once. A single command (`boxwood run`) is known by its pid, beside
//! any daemon and any number of its like.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use boxwood_backend::StartError;
use rustix::fs::FlockOperation;

use crate::settings::{Kind, Settings};

const SINGLE: &str = "run-";

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// Held for as long as the daemon lives.
    _lock: Option<File>,
}

impl Instance {
    pub(crate) fn claim(settings: &Settings) -> Result<Self, StartError> {
        match settings.kind {
            Kind::Single => Ok(Self {
                name: format!("{SINGLE}{}", std::process::id()),
                _lock: None,
            }),
            Kind::Daemon => {
                let lock = lock(&settings.state_dir)?;
                Ok(Self {
                    name: name(&settings.state_dir),
                    _lock: Some(lock),
                })
            }
        }
    }
}

/// Whether `name` is that of a single command that has ended without clearing up.
pub(crate) fn is_stale(name: &str) -> bool {
    let pid = name
        .strip_prefix(SINGLE)
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn lock(state_dir: &Path) -> Result<File, StartError> {
    let step = |what: &str| {
        let step = format!("{what} `{}`", state_dir.display());
        move |source: io::Error| StartError::Step { step, source }
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(step("make"))?;
    // The directory itself: nothing to leave behind.
    let file = File::open(state_dir).map_err(step("open"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Unavailable {
            why: format!(
                "another daemon uses the state directory `{}`",
                state_dir.display()
            ),
            hint: "stop it, or give this one a directory of its own with `--state-dir`".to_owned(),
        }),
        Err(errno) => Err(step("lock")(errno.into())),
    }
}

/// Twelve hex digits, the same for the same directory after a restart.
fn name(state_dir: &Path) -> String {
    let path = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    // FNV-1a: stable across builds, which the standard library's hasher does not promise.
    let hash = path
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{:012x}", hash & 0xffff_ffff_ffff)
}
