//! An engine that listens on a socket of this machine but does not see its files, such as one in the
//! virtual machine of a desktop.
#![forbid(unsafe_code)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use boxwood_backend::{Backend, StartError};
use boxwood_backend_container::{ContainerBackend, ContainerSettings};
use boxwood_local::{LocalHost, Settings};
use boxwood_suites::{BackendSetup as _, BoxSpec, Fixture, StateDirs, failed, run_trials, runtime};
use libtest_mimic::Trial;
use support::{Chosen, Containers};

fn main() {
    // The result does not depend on the runtime or the engine.
    let trials = match Chosen::from_environment() {
        Ok(Chosen::Docker) | Err(_) => vec![Trial::test(
            "an_engine_that_does_not_see_our_files_is_reached_through_its_connection",
            || reached_through_its_connection().map_err(|error| failed(&error)),
        )],
        Ok(_) => Vec::new(),
    };
    run_trials(trials)
}

fn reached_through_its_connection() -> anyhow::Result<()> {
    let dirs = StateDirs::make()?;
    let engine = Hidden::start(&dirs.state_dir())?;
    let host = LocalHost::launch(&Settings {
        state_dir: dirs.state_dir(),
        run_dir: dirs.run_dir(),
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
        "the engine must count as local at first"
    );
    let fixture = Fixture::new(Arc::clone(&backend) as Arc<dyn Backend>, Containers.host()?)?;
    runtime()?.block_on(async {
        let outcome = check(&fixture, backend.as_ref()).await;
        fixture.close().await.and(outcome)
    })
}

async fn check(fixture: &Fixture, backend: &ContainerBackend) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let stdout = test_box.stdout_of("echo \"$((6 * 7)) $(id -u)\"").await?;
    ensure!(stdout == "42 1000\n", "{stdout:?}");
    let capabilities = backend.capabilities();
    ensure!(
        !capabilities.files
            && !capabilities.live_mounts
            && !capabilities.network
            && !capabilities.host_mounts,
        "{capabilities:?}"
    );
    let directory = fixture.host_dir("directory")?;
    for spec in [
        BoxSpec::new().workspace(&directory, MountMode::Ro),
        BoxSpec::new().network(Network::On),
    ] {
        let answer = fixture.try_start(&spec).await?.err();
        ensure!(
            matches!(answer, Some(StartError::Unsupported { .. })),
            "{answer:?}"
        );
    }
    test_box.stop().await?;
    ensure!(!test_box.sandbox().is_alive());
    Ok(())
}

const IMAGE: &str = "boxwood-elsewhere:1";

/// A Docker daemon that sees one directory as empty.
struct Hidden {
    daemon: Child,
    dir: tempfile::TempDir,
}

impl Hidden {
    fn start(hidden: &Path) -> anyhow::Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
        let program = variable("BOXWOOD_TEST_DOCKERD")?;
        let archive = variable("BOXWOOD_TEST_ROOTFS_SMALL_TAR")?;
        let dir = tempfile::tempdir()?;
        let script = "mount -t tmpfs tmpfs \"$1\" && exec \"$2\" \"$3\"";
        let daemon = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg("hidden")
            .arg(hidden)
            .arg(program)
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a separate Docker daemon")?;
        let engine = Self { daemon, dir };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !engine.docker(&["version"])? {
            ensure!(Instant::now() < deadline, "the daemon did not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        let imported = engine.docker(&["image", "import", &archive, IMAGE])?;
        ensure!(imported, "importing {archive}");
        Ok(engine)
    }

    fn address(&self) -> String {
        format!("unix://{}", self.dir.path().join("docker.sock").display())
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
