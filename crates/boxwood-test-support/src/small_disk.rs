//! A file system that is soon full.
//!
//! As root the test mounts it; otherwise the test runs again as root of a user namespace.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

const FILLER: &str = "filler";

pub struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    /// Does the work with a new one. `test` is the full name of the test that calls this.
    pub fn run<F: Future<Output = ()>>(test: &str, work: impl FnOnce(Self) -> F) {
        if !rustix::process::geteuid().is_root() {
            let again = std::process::Command::new("unshare")
                .args(["--user", "--map-root-user", "--mount", "--"])
                .arg(std::env::current_exe().expect("this program"))
                .args(["--exact", test, "--nocapture"])
                .output()
                .expect("`unshare` of util-linux is installed");
            let said = String::from_utf8_lossy(&again.stdout);
            let warned = String::from_utf8_lossy(&again.stderr);
            // A name that no test has would pass as well.
            assert!(
                again.status.success() && said.contains("1 passed"),
                "it failed as root of a user namespace:\n{said}{warned}"
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
        let place = tempfile::tempdir().expect("a directory");
        let options = c"size=512k,mode=700";
        rustix::mount::mount("tmpfs", place.path(), "tmpfs", MountFlags::empty(), options)
            .expect("root may mount a tmpfs");
        Self { place }
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// To the last byte.
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
