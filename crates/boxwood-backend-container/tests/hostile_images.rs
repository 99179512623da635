//! Images that somebody made to get out, on the engine that the environment chooses.
//!
//! A box from such an image is as closed as any other, or there is none.
#![forbid(unsafe_code)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;
use boxwood_backend::suite::{Bench, HeldBox, Places, Subject as _, Wish, runtime};
use boxwood_backend::{Backend, StartError};
use boxwood_backend_container::{ContainerBackend, ContainerSettings};
use boxwood_local::{LocalHost, Settings};
use support::{Chosen, Containers};

/// An image of the engine's, removed when dropped.
struct Hostile {
    settings: ContainerSettings,
}

impl Hostile {
    /// The small image of the tests with something done to its files, and instructions of its own.
    fn make(
        name: &str,
        instructions: &[&str],
        spoil: impl FnOnce(&Path) -> anyhow::Result<()>,
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
        spoil(files.path())?;
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
        // With it goes its end of the pipe: whoever packs for nobody ends.
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

    /// Starts a box from it and looks at what came of it.
    fn start(
        &self,
        wish: &Wish,
        look: impl AsyncFnOnce(Result<HeldBox, StartError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let places = Places::make()?;
        let host = LocalHost::launch(&Settings {
            state_dir: places.state_dir(),
            run_dir: places.run_dir(),
            ..Settings::default()
        })?;
        let backend: Arc<dyn Backend> =
            Arc::new(ContainerBackend::new(host, self.settings.clone()));
        runtime()?.block_on(async {
            let bench = Bench::new(backend, Containers.host()?)?;
            let outcome = look(bench.try_start(wish).await?).await;
            bench.close().await?;
            outcome
        })
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let mut remove = self.engine();
        let removed = remove.args(["image", "rm", "--", &self.settings.image]);
        if let Err(error) = removed.output() {
            eprintln!("an image stays: {error}");
        }
    }
}

fn replace_by_link(root: &Path, place: &str, target: &str) -> anyhow::Result<()> {
    let place = root.join(place);
    let found = fs::symlink_metadata(&place);
    match found {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&place)?,
        Ok(_) => fs::remove_file(&place)?,
        Err(_) => fs::create_dir_all(place.parent().context("a parent")?)?,
    }
    Ok(symlink(target, place)?)
}

/// Whoever furnishes a container may read what nobody in it can. A table of users that leads there must
/// not bring it in.
#[test]
fn a_table_of_users_brings_nothing_of_the_kernels_in() -> anyhow::Result<()> {
    let hostile = Hostile::make("table", &[], |root| {
        replace_by_link(root, "etc/group", "/proc/iomem")
    })?;
    hostile.start(&Wish::new(), async |started| {
        let Ok(held) = started else {
            return Ok(());
        };
        let said = held.says("cat /etc/group").await?;
        ensure!(!said.contains("System RAM"), "the box reads: {said}");
        Ok(())
    })
}

/// A volume is on the host's disk, without a bound, and `/dev` is a place where Landlock lets commands
/// write.
#[test]
fn a_read_only_root_has_no_volumes_to_write_to() -> anyhow::Result<()> {
    // Behind another kernel nobody but the engine mounts anything; there the label must not claim a bound.
    let behind = Chosen::from_environment()? == Chosen::Gvisor;
    let places = ["data", "dev/store"];
    let instructions = ["VOLUME /data", "VOLUME /dev/store"];
    let hostile = Hostile::make("volume", &instructions, |root| {
        for place in places {
            fs::create_dir_all(root.join(place))?;
            fs::set_permissions(root.join(place), PermissionsExt::from_mode(0o777))?;
        }
        Ok(())
    })?;
    hostile.start(&Wish::new().read_only_root(true), async |started| {
        let held = started?;
        if behind {
            ensure!(!held.sandbox().label().has(Mechanism::DiskQuota));
            return Ok(());
        }
        let write = "for d in /data /dev/store; do (: > $d/x) 2>/dev/null && echo $d; done; true";
        let said = held.says(write).await?;
        ensure!(said.is_empty(), "the box writes to: {said}");
        Ok(())
    })
}

/// Links in the places that a box has of its own: nothing is mounted where they lead, and no command runs
/// as anybody else.
#[test]
fn links_in_place_of_the_boxs_own_directories_lead_nowhere() -> anyhow::Result<()> {
    for place in [
        "tmp",
        "home",
        "workspace",
        "etc",
        ".boxwood",
        "dev",
        "proc",
        "sys",
    ] {
        let name = place.trim_start_matches('.');
        let hostile = Hostile::make(name, &[], |root| {
            fs::create_dir_all(root.join("bin/trap"))?;
            replace_by_link(root, place, "/bin/trap")
        })?;
        hostile
            .start(&Wish::new(), async |started| {
                let Ok(held) = started else {
                    return Ok(());
                };
                let said = held.says("id -u; grep -c . /proc/self/status").await?;
                ensure!(said.starts_with("1000\n"), "commands are {said}");
                held.says("head -c 1 /dev/zero >/dev/null; : > /tmp/x; : > ~/x")
                    .await
                    .map(drop)
            })
            .with_context(|| format!("/{place} is a link"))?;
    }
    Ok(())
}

/// What an image says about how it is to be run is not asked.
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
        "LABEL boxwood.instance=somebody",
    ];
    let hostile = Hostile::make("instructions", &instructions, |_| Ok(()))?;
    hostile.start(&Wish::new(), async |started| {
        let held = started?;
        let said = held
            .says("ls /entered 2>/dev/null; id -u; pwd; echo $HOME; ls /proc | grep -cx 1; true")
            .await?;
        let expected = "1000\n/workspace\n/home/box\n0\n";
        let behind = Chosen::from_environment()? == Chosen::Gvisor;
        ensure!(
            said == expected || (behind && said.starts_with("1000\n/workspace\n/home/box\n")),
            "the box says: {said}"
        );
        Ok(())
    })
}
