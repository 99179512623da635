//! The state directory is full: existing sessions continue, and new ones are refused.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::ensure;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use tempfile::TempDir;

use crate::ask::{Answer, ask, must};
use crate::instance::Instance;
use crate::leftovers::survive;
use crate::random::kills;

#[test]
fn a_full_disk_between_kills_leaves_nothing_behind_and_loses_nothing() {
    let disk = SmallDisk::mount();
    let instance = Instance::with_state(&disk.path().join("state"));
    survive("full_disk", &instance, async |storm, mut daemon| {
        let port = instance.port();
        // Created while there is space, and deleted while there is none.
        must(port, "POST", "/v1/sessions/doomed", Some(&json!({}))).await?;
        let tally = std::sync::Arc::clone(&storm.tally);
        for round in 0..kills(40) {
            if round % 4 == 1 {
                tally.no_room.store(true, Ordering::Release);
                disk.fill()?;
                if round == 1 {
                    nothing_new(port, instance.state()).await?;
                    must(port, "DELETE", "/v1/sessions/doomed", None).await?;
                }
            }
            storm.kill(daemon).await?;
            daemon = storm.next().await?;
            if round % 4 == 3 {
                disk.empty()?;
                must(port, "POST", "/v1/sessions/again", Some(&json!({}))).await?;
                must(port, "DELETE", "/v1/sessions/again", None).await?;
                // Requests that were sent while the disk was full have their responses by now.
                tally.no_room.store(false, Ordering::Release);
            }
        }
        disk.empty()?;
        tally.no_room.store(false, Ordering::Release);
        println!("{} refused", tally.refused.load(Ordering::Relaxed));
        Ok(daemon)
    });
    drop(instance);
}

/// The error names the state directory.
async fn nothing_new(port: u16, state: &Path) -> anyhow::Result<()> {
    match ask(port, "POST", "/v1/sessions/late", Some(&json!({}))).await? {
        Answer::Response(status, body) => {
            let text = body.to_string();
            ensure!(
                status >= 500 && text.contains(&*state.to_string_lossy()),
                "a full disk is reported as {status}: {text}"
            );
            Ok(())
        }
        Answer::Lost => anyhow::bail!("the daemon ended because of a full disk"),
    }
}

/// A file system of a few megabytes.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let directory = tempfile::Builder::new().prefix("storm-disk-").tempdir();
        let directory = directory.expect("a temporary directory");
        let options = c"size=8m,mode=700";
        let mounted = mount(
            "storm",
            directory.path(),
            "tmpfs",
            MountFlags::empty(),
            options,
        );
        mounted.expect("only root can mount; skip this test, or run it as root");
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Writes until no space is left.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.ballast())?;
        loop {
            match file.write(&[b'#'; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn empty(&self) -> io::Result<()> {
        match fs::remove_file(self.ballast()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Detached, because processes may still have files open.
        let _ = unmount(self.directory.path(), UnmountFlags::DETACH);
    }
}
