//! A daemon that can be killed without killing the test: the test's own program, run once more.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::WaitOptions;

use super::wish;
use crate::suite::{Bench, Places, Subject, runtime};

/// Where the daemon's state is. Set in the daemon alone.
const PLACES: &str = "BOXWOOD_SUITE_DAEMON";
const READY: &str = "the boxes are running";
pub(super) const BOXES: usize = 4;
/// For everything of a killed daemon to be dead.
const PATIENCE: Duration = Duration::from_mins(1);

/// Does not return in a process that was started as the daemon.
pub(super) fn be_the_daemon_if_asked(subject: &dyn Subject) {
    let Some(directory) = std::env::var_os(PLACES) else {
        return;
    };
    let places = Places::of(PathBuf::from(directory));
    let outcome = serve(subject, &places);
    eprintln!("the daemon ended before it was killed: {outcome:?}");
    std::process::exit(1)
}

/// Starts boxes with something running in them, says so, and waits to be killed.
fn serve(subject: &dyn Subject, places: &Places) -> anyhow::Result<()> {
    let host = subject.host()?;
    let backend = subject.launch(places)?;
    runtime()?.block_on(async {
        let bench = Bench::new(backend, host)?;
        let mut boxes = Vec::new();
        for number in 0..BOXES {
            let held = bench.start(&wish(bench.host(), number)).await?;
            held.says("(sleep 300 &) >/dev/null 2>&1").await?;
            held.sandbox()
                .remember(b"a box of a daemon that will be killed")
                .await?;
            boxes.push(held);
        }
        println!("{READY}");
        std::io::stdout().flush()?;
        std::future::pending::<()>().await;
        drop(boxes);
        Ok(())
    })
}

/// Runs a daemon until its boxes are up, and kills it.
pub(super) fn run_and_kill(places: &Places) -> anyhow::Result<()> {
    let mut daemon = Command::new(std::env::current_exe()?)
        .env(PLACES, places.directory())
        // It leaves its scratch directory; that goes with the others.
        .env("TMPDIR", places.directory())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a daemon of the test's own")?;
    let said = match daemon.stdout.take() {
        Some(stdout) => BufReader::new(stdout).lines().next().transpose(),
        None => bail!("the daemon has no standard output"),
    };
    daemon.kill()?;
    daemon.wait()?;
    let said = said?.unwrap_or_default();
    ensure!(said == READY, "the daemon said {said:?}");
    Ok(())
}

/// Waits for what the daemons left, as the host's own init would. Boxes that outlive their daemon, and
/// helpers (an ordinary user's `pasta` watches a directory), go when a successor clears up. Whoever lives
/// on after that is an orphan that nobody ends.
pub(super) fn reap_orphans() -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => {
                ensure!(
                    began.elapsed() < PATIENCE,
                    "processes of the killed daemon live on"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(errno) => return Err(errno).context("waiting for what the daemon left"),
        }
    }
}
