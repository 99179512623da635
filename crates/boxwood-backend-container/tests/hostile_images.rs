//! Images that were built to escape, on the engine chosen by the environment.
//!
//! A box from such an image must be as isolated as any other, or must not start.
#![forbid(unsafe_code)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;
use boxwood_backend::{Backend, StartError};
use boxwood_backend_container::{ContainerBackend, ContainerSettings};
use boxwood_local::{LocalHost, Settings};
use boxwood_suites::{BackendSetup as _, BoxSpec, Fixture, StateDirs, TestBox, runtime};
use support::{Chosen, Containers};

/// An image of the engine, removed when dropped.
struct Hostile {
    settings: ContainerSettings,
}

impl Hostile {
    /// The small test image with changes to its files and its own instructions.
    fn make(
        name: &str,
        instructions: &[&str],
        change: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut settings = Chosen::from_environment()?.settings()?;
        settings.image = format!("boxwood-hostile-{name}-{}:1", std::process::id());
        let hostile = Self { settings };
        let files = tempfile::tempdir()?;
        let tar = std::env::var("BOXWOOD_TEST_ROOTFS_SMALL_TAR")
            .context("BOXWOOD_TEST_ROOTFS_SMALL_TAR is not set")?;
        let unpacked = Command::new("tar")
            .args(["-x", "-f", &tar, "-C"])
            .arg(files.path())
            .status()?;
        ensure!(unpacked.success(), "unpacking {tar}");
        change(files.path())?;
        let mut pack = Command::new("tar")
            .arg("-C")
            .arg(files.path())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()?;
        let archive = pack.stdout.take().context("an archive")?;
        let mut import = hostile.engine();
        import.args(["image", "import"]);
        for instruction in instructions {
            import.args(["--change", instruction]);
        }
        let imported = import
            .args(["-", &hostile.settings.image])
            .stdin(archive)
            .output()?;
        // Closes our end of the pipe, so that `tar` exits if the import has failed.
        drop(import);
        let packed = pack.wait()?;
        ensure!(
            imported.status.success(),
            "importing: {}",
            String::from_utf8_lossy(&imported.stderr)
        );
        ensure!(packed.success(), "packing the image");
        Ok(hostile)
    }

    fn engine(&self) -> Command {
        let mut command = Command::new(&self.settings.program);
        if let Some(host) = &self.settings.docker_host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    /// Starts a box from the image and passes the result to `check`.
    fn start(
        &self,
        spec: &BoxSpec,
        check: impl AsyncFnOnce(Result<TestBox, StartError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let dirs = StateDirs::make()?;
        let host = LocalHost::launch(&Settings {
            state_dir: dirs.state_dir(),
            run_dir: dirs.run_dir(),
            ..Settings::default()
        })?;
        let backend: Arc<dyn Backend> =
            Arc::new(ContainerBackend::new(host, self.settings.clone()));
        runtime()?.block_on(async {
            let fixture = Fixture::new(backend, Containers.host()?)?;
            let outcome = check(fixture.try_start(spec).await?).await;
            fixture.close().await?;
            outcome
        })
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let mut remove = self.engine();
        let removed = remove.args(["image", "rm", "--", &self.settings.image]);
        if let Err(error) = removed.output() {
            eprintln!("failed to remove an image: {error}");
        }
    }
}

fn replace_by_link(root: &Path, path: &str, target: &str) -> anyhow::Result<()> {
    let path = root.join(path);
    let found = fs::symlink_metadata(&path);
    match found {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&path)?,
        Ok(_) => fs::remove_file(&path)?,
        Err(_) => fs::create_dir_all(path.parent().context("a parent")?)?,
    }
    Ok(symlink(target, path)?)
}

/// The mount helper can read files that commands cannot. A link in the image must not expose them.
#[test]
fn a_linked_group_file_exposes_no_files_of_the_host() -> anyhow::Result<()> {
    let hostile = Hostile::make("table", &[], |root| {
        replace_by_link(root, "etc/group", "/proc/iomem")
    })?;
    hostile.start(&BoxSpec::new(), async |started| {
        let Ok(test_box) = started else {
            return Ok(());
        };
        let stdout = test_box.stdout_of("cat /etc/group").await?;
        ensure!(!stdout.contains("System RAM"), "the box reads: {stdout}");
        Ok(())
    })
}

/// A volume is on the host's disk without a size limit, and Landlock lets commands write below `/dev`.
#[test]
fn a_read_only_root_has_no_volumes_to_write_to() -> anyhow::Result<()> {
    // On another kernel the volumes are mounted by the engine; the label must not claim a disk quota there.
    let is_gvisor = Chosen::from_environment()? == Chosen::Gvisor;
    let directories = ["data", "dev/store"];
    let instructions = ["VOLUME /data", "VOLUME /dev/store"];
    let hostile = Hostile::make("volume", &instructions, |root| {
        for path in directories {
            fs::create_dir_all(root.join(path))?;
            fs::set_permissions(root.join(path), PermissionsExt::from_mode(0o777))?;
        }
        Ok(())
    })?;
    hostile.start(&BoxSpec::new().read_only_root(true), async |started| {
        let test_box = started?;
        if is_gvisor {
            ensure!(!test_box.sandbox().label().has(Mechanism::DiskQuota));
            return Ok(());
        }
        let write = "for d in /data /dev/store; do (: > $d/x) 2>/dev/null && echo $d; done; true";
        let stdout = test_box.stdout_of(write).await?;
        ensure!(stdout.is_empty(), "the box writes to: {stdout}");
        Ok(())
    })
}

/// Links in place of directories that every box has: nothing is mounted at their targets, and commands keep
/// their uid.
#[test]
fn symlinks_in_place_of_mount_points_are_not_followed() -> anyhow::Result<()> {
    for path in [
        "tmp",
        "home",
        "workspace",
        "etc",
        ".boxwood",
        "dev",
        "proc",
        "sys",
    ] {
        let name = path.trim_start_matches('.');
        let hostile = Hostile::make(name, &[], |root| {
            fs::create_dir_all(root.join("bin/trap"))?;
            replace_by_link(root, path, "/bin/trap")
        })?;
        hostile
            .start(&BoxSpec::new(), async |started| {
                let Ok(test_box) = started else {
                    return Ok(());
                };
                let stdout = test_box
                    .stdout_of("id -u; grep -c . /proc/self/status")
                    .await?;
                ensure!(stdout.starts_with("1000\n"), "commands are {stdout}");
                test_box
                    .stdout_of("head -c 1 /dev/zero >/dev/null; : > /tmp/x; : > ~/x")
                    .await
                    .map(drop)
            })
            .with_context(|| format!("/{path} is a link"))?;
    }
    Ok(())
}

/// The image's own configuration is ignored.
#[test]
fn an_images_own_instructions_do_not_run() -> anyhow::Result<()> {
    let instructions = [
        "ENTRYPOINT [\"/bin/sh\", \"-c\", \"touch /entered; sleep 600\"]",
        "CMD [\"join-stream\", \"--privileged\"]",
        "USER 4242:4242",
        "WORKDIR /proc/self/fd/7",
        "ENV LD_PRELOAD=/evil.so",
        "ENV HOME=/evil",
        "ENV BOXWOOD_INIT=/evil",
        "LABEL boxwood.instance=other",
    ];
    let hostile = Hostile::make("instructions", &instructions, |_| Ok(()))?;
    hostile.start(&BoxSpec::new(), async |started| {
        let test_box = started?;
        let stdout = test_box
            .stdout_of(
                "ls /entered 2>/dev/null; id -u; pwd; echo $HOME; ls /proc | grep -cx 1; true",
            )
            .await?;
        let expected = "1000\n/workspace\n/home/box\n0\n";
        let is_gvisor = Chosen::from_environment()? == Chosen::Gvisor;
        ensure!(
            stdout == expected
                || (is_gvisor && stdout.starts_with("1000\n/workspace\n/home/box\n")),
            "the box says: {stdout}"
        );
        Ok(())
    })
}
