//! A `dockerd` that a test may kill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::engine::{Engine, variable};
use crate::waiting::until;

const IMAGE: &str = "small:1";

pub(crate) struct Dockerd {
    child: Child,
    directory: TempDir,
    pub(crate) engine: Engine,
}

impl Dockerd {
    /// With the small image imported.
    pub(crate) async fn start() -> Self {
        // The path of a socket must be short.
        let directory = tempfile::Builder::new().prefix("bxd-").tempdir_in("/tmp");
        let directory = directory.expect("a directory");
        let socket = directory.path().join("docker.sock");
        let mut dockerd = Self {
            child: spawn(directory.path()),
            engine: Engine::docker_at(format!("unix://{}", socket.display()), IMAGE),
            directory,
        };
        dockerd.wait_until_ready().await;
        let tar = variable("BOXWOOD_TEST_ROOTFS_SMALL_TAR");
        dockerd.engine.run(&["import", &tar, IMAGE]);
        dockerd
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("dockerd can be signalled");
    }

    /// Waits for the end after a signal.
    pub(crate) async fn ended(&mut self) {
        let child = &mut self.child;
        until("dockerd ends", || matches!(child.try_wait(), Ok(Some(_)))).await;
    }

    pub(crate) async fn start_again(&mut self) {
        // Its `containerd` ends with it, and must not be mistaken for a running one meanwhile.
        let note = self.directory.path().join("run/containerd/containerd.pid");
        let helper = fs::read_to_string(note).unwrap_or_default();
        let helper = Path::new("/proc").join(helper.trim());
        let is_helper = || {
            let name = fs::read_to_string(helper.join("comm")).unwrap_or_default();
            name.starts_with("containerd")
        };
        until("the helper of the dead daemon is gone", || !is_helper()).await;
        self.child = spawn(self.directory.path());
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&mut self) {
        let engine = self.engine.clone();
        let (child, directory) = (&mut self.child, self.directory.path());
        until("dockerd answers", || {
            // As a service manager would.
            if matches!(child.try_wait(), Ok(Some(_))) {
                *child = spawn(directory);
            }
            engine.try_run(&["version"]).is_ok()
        })
        .await;
    }

    fn end_politely(&mut self) {
        let _ = kill_process_of(&self.child, Signal::CONT);
        let _ = kill_process_of(&self.child, Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(15) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill_process_of(child: &Child, signal: Signal) -> rustix::io::Result<()> {
    match i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        Some(pid) => kill_process(pid, signal),
        None => Ok(()),
    }
}

fn spawn(directory: &Path) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))
        .expect("its log");
    Command::new(variable("BOXWOOD_TEST_DOCKERD"))
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("its log"))
        .stderr(log)
        .spawn()
        .expect("dockerd can be started")
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end_politely();
        }
        // Its helpers and what they watch, where it was killed: all of them name its directory.
        let ours = self.directory.path().display().to_string();
        for (pid, line) in crate::traces::command_lines() {
            if line.contains(&ours)
                && let Some(pid) = Pid::from_raw(pid)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mut below: Vec<&str> = points.filter(|point| point.starts_with(&ours)).collect();
        below.sort_unstable();
        for point in below.into_iter().rev() {
            let _ = Command::new("umount").args(["--lazy", point]).status();
        }
    }
}
