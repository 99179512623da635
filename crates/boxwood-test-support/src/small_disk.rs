//! A small file system that a test can fill.
//!
//! As root the test mounts it; otherwise the test runs again as root of a user namespace.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

const FILLER: &str = "filler";

pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Runs `work` with a new small file system. `test` is the full name of the test that calls this.
    pub fn run<F: Future<Output = ()>>(test: &str, work: impl FnOnce(Self) -> F) {
        if !rustix::process::geteuid().is_root() {
            let output = std::process::Command::new("unshare")
                .args(["--user", "--map-root-user", "--mount", "--"])
                .arg(std::env::current_exe().expect("this program"))
                .args(["--exact", test, "--nocapture"])
                .output()
                .expect("`unshare` of util-linux is installed");
            let stdout = String::from_utf8_lossy(&output.stdout);
            let stderr = String::from_utf8_lossy(&output.stderr);
            // With a wrong name no test runs, which is a success too.
            assert!(
                output.status.success() && stdout.contains("1 passed"),
                "it failed as root of a user namespace:\n{stdout}{stderr}"
            );
            return;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let disk = Self::mount();
        runtime.expect("a runtime").block_on(work(disk));
    }

    fn mount() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = c"size=512k,mode=700";
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options)
            .expect("root may mount a tmpfs");
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Fills the file system to the last byte.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.path().join(FILLER)).expect("a file");
        for size in [4096, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
    }

    pub fn make_room(&self) {
        fs::remove_file(self.path().join(FILLER)).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}
