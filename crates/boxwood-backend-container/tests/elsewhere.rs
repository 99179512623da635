//! An engine that answers on a socket of this machine and does not see its files, as one in a virtual
//! machine of a desktop does.
#![forbid(unsafe_code)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use boxwood_backend::suite::{Bench, Places, Subject as _, Wish, conclude, failed, runtime};
use boxwood_backend::{Backend, StartError};
use boxwood_backend_container::{ContainerBackend, ContainerSettings};
use boxwood_local::{LocalHost, Settings};
use libtest_mimic::Trial;
use support::{Chosen, Containers};

fn main() {
    // Which runtime is behind it, or which engine, changes nothing about it.
    let trials = match Chosen::from_environment() {
        Ok(Chosen::Docker) | Err(_) => vec![Trial::test(
            "an_engine_that_does_not_see_our_files_is_reached_through_its_connection",
            || reached_through_its_connection().map_err(|error| failed(&error)),
        )],
        Ok(_) => Vec::new(),
    };
    conclude(trials)
}

fn reached_through_its_connection() -> anyhow::Result<()> {
    let places = Places::make()?;
    let engine = Hidden::start(&places.state_dir())?;
    let host = LocalHost::launch(&Settings {
        state_dir: places.state_dir(),
        run_dir: places.run_dir(),
        ..Settings::default()
    })?;
    let settings = ContainerSettings {
        docker_host: Some(engine.address()),
        image: IMAGE.to_owned(),
        pull: false,
        ..Chosen::Docker.settings()?
    };
    let backend = Arc::new(ContainerBackend::new(host, settings));
    ensure!(
        backend.capabilities().files,
        "nothing is known of it at first"
    );
    let bench = Bench::new(Arc::clone(&backend) as Arc<dyn Backend>, Containers.host()?)?;
    runtime()?.block_on(async {
        let outcome = look_at(&bench, backend.as_ref()).await;
        bench.close().await.and(outcome)
    })
}

async fn look_at(bench: &Bench, backend: &ContainerBackend) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let said = held.says("echo \"$((6 * 7)) $(id -u)\"").await?;
    ensure!(said == "42 1000\n", "{said:?}");
    let able = backend.capabilities();
    ensure!(
        !able.files && !able.live_mounts && !able.network && !able.host_mounts,
        "{able:?}"
    );
    let directory = bench.host_dir("directory")?;
    for wish in [
        Wish::new().workspace(&directory, MountMode::Ro),
        Wish::new().network(Network::On),
    ] {
        let answer = bench.try_start(&wish).await?.err();
        ensure!(
            matches!(answer, Some(StartError::Unsupported { .. })),
            "{answer:?}"
        );
    }
    held.stop().await?;
    ensure!(!held.sandbox().is_alive());
    Ok(())
}

const IMAGE: &str = "boxwood-elsewhere:1";

/// A Docker daemon for whom one directory is empty.
struct Hidden {
    daemon: Child,
    place: tempfile::TempDir,
}

impl Hidden {
    fn start(hidden: &Path) -> anyhow::Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
        let program = variable("BOXWOOD_TEST_DOCKERD")?;
        let archive = variable("BOXWOOD_TEST_ROOTFS_SMALL_TAR")?;
        let place = tempfile::tempdir()?;
        let script = "mount -t tmpfs tmpfs \"$1\" && exec \"$2\" \"$3\"";
        let daemon = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg("hidden")
            .arg(hidden)
            .arg(program)
            .arg(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a Docker daemon of its own")?;
        let engine = Self { daemon, place };
        let until = Instant::now() + Duration::from_mins(1);
        while !engine.docker(&["version"])? {
            ensure!(Instant::now() < until, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        let imported = engine.docker(&["image", "import", &archive, IMAGE])?;
        ensure!(imported, "importing {archive}");
        Ok(engine)
    }

    fn address(&self) -> String {
        format!("unix://{}", self.place.path().join("docker.sock").display())
    }

    fn docker(&self, args: &[&str]) -> anyhow::Result<bool> {
        let status = Command::new("docker")
            .args(args)
            .env("DOCKER_HOST", self.address())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}
