//! A daemon that can be killed without killing the test: a child process that runs the test's own program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::WaitOptions;

use super::spec;
use crate::{BackendSetup, Fixture, StateDirs, runtime};

/// Where the daemon's state is. Set in the daemon alone.
const STATE_DIR: &str = "BOXWOOD_SUITE_DAEMON";
const READY: &str = "the boxes are running";
pub(super) const BOXES: usize = 4;
/// Time until all processes of a killed daemon have ended.
const ORPHAN_TIMEOUT: Duration = Duration::from_mins(1);

/// Does not return in a process that was started as the daemon.
pub(super) fn run_as_daemon_if_requested(setup: &dyn BackendSetup) {
    let Some(directory) = std::env::var_os(STATE_DIR) else {
        return;
    };
    let dirs = StateDirs::of(PathBuf::from(directory));
    let outcome = serve(setup, &dirs);
    eprintln!("the daemon ended before it was killed: {outcome:?}");
    std::process::exit(1)
}

/// Starts boxes with a running command each, prints `READY`, and waits to be killed.
fn serve(setup: &dyn BackendSetup, dirs: &StateDirs) -> anyhow::Result<()> {
    let host = setup.host()?;
    let backend = setup.launch(dirs)?;
    runtime()?.block_on(async {
        let fixture = Fixture::new(backend, host)?;
        let mut boxes = Vec::new();
        for number in 0..BOXES {
            let test_box = fixture.start(&spec(fixture.host(), number)).await?;
            test_box.stdout_of("(sleep 300 &) >/dev/null 2>&1").await?;
            test_box
                .sandbox()
                .remember(b"a box of a daemon that will be killed")
                .await?;
            boxes.push(test_box);
        }
        println!("{READY}");
        std::io::stdout().flush()?;
        std::future::pending::<()>().await;
        drop(boxes);
        Ok(())
    })
}

/// Runs a daemon until its boxes are up, and kills it.
pub(super) fn run_and_kill(dirs: &StateDirs) -> anyhow::Result<()> {
    let mut daemon = Command::new(std::env::current_exe()?)
        .env(STATE_DIR, dirs.directory())
        // It leaves its scratch directory, which is removed with the state directory.
        .env("TMPDIR", dirs.directory())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a daemon of the test's own")?;
    let line = match daemon.stdout.take() {
        Some(stdout) => BufReader::new(stdout).lines().next().transpose(),
        None => bail!("the daemon has no standard output"),
    };
    daemon.kill()?;
    daemon.wait()?;
    let line = line?.unwrap_or_default();
    ensure!(
        line == READY,
        "the daemon printed {line:?} instead of its ready line"
    );
    Ok(())
}

/// Reaps the processes that the daemons left, as init would. Boxes that outlive their daemon and helpers (a rootless
/// `pasta` watches a directory) end when a successor cleans up. What still runs after that is a leak.
pub(super) fn reap_orphans() -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => {
                ensure!(
                    began.elapsed() < ORPHAN_TIMEOUT,
                    "processes of the killed daemon are still running"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(errno) => {
                return Err(errno).context("waiting for the processes that the daemon left");
            }
        }
    }
}
