//! The form in which tests run: short or long, on an idle or a busy machine.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Set to `1` for tests that have a long form.
pub(super) const LONG_VARIABLE: &str = "BOXWOOD_TEST_LONG";

static LONG: AtomicBool = AtomicBool::new(false);

pub(super) fn choose_long() {
    LONG.store(true, Ordering::Relaxed);
}

pub(super) fn is_long() -> bool {
    LONG.load(Ordering::Relaxed)
}

/// Passes the selected form to the tests of `command`.
pub(super) fn pass_on(command: &mut Command) -> &mut Command {
    if is_long() {
        command.env(LONG_VARIABLE, "1");
    }
    command
}

/// One busy loop for each processor, until it is dropped.
pub(super) struct Load {
    loops: Vec<Child>,
}

impl Load {
    pub(super) fn start() -> Result<Self> {
        let processors = std::thread::available_parallelism()?.get();
        let mut load = Self { loops: Vec::new() };
        for _ in 0..processors {
            let busy = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("a busy loop could not be started")?;
            load.loops.push(busy);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for busy in &mut self.loops {
            let _ = busy.kill();
            let _ = busy.wait();
        }
    }
}
