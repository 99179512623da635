//! Owns the engines in a process of its own.
//!
//! A process and process group of its own, because the process that uses the engines may end in any way: return,
//! panic, Ctrl-C, SIGKILL. In every case the pipe closes, and the keeper stops the engines and removes their files.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::dockerd::Dockerd;
use super::podman::Podman;
use super::registry::Registry;
use super::run_directory::RunDirectory;
use super::{Engine, IMAGE, IMAGE_SMALL, Started, Variables, images, nsjail};

/// Running engines. Dropping this stops them.
pub(crate) struct Engines {
    keeper: Child,
    started: Started,
}

impl Engines {
    /// To be called after [`super::prepare`].
    pub(crate) fn start(engines: &[Engine]) -> Result<Self> {
        let begun = Instant::now();
        let mut keeper = Command::new(std::env::current_exe()?)
            .args(["engines", "keep"])
            .args(
                engines
                    .iter()
                    .filter_map(|engine| Some(engine.to_possible_value()?.get_name().to_owned())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("the keeper of the engines could not be started")?;
        let lines = keeper.stdout.take().map(BufReader::new);
        for line in lines.into_iter().flat_map(BufReader::lines) {
            let line = line?;
            if let Ok(started) = serde_json::from_str(&line) {
                eprintln!("engines up after {:.1} s", begun.elapsed().as_secs_f64());
                return Ok(Self { keeper, started });
            }
            // Progress of the keeper.
            eprintln!("{line}");
        }
        let status = keeper.wait()?;
        bail!("the engines could not be started, see above: {status}");
    }

    pub(crate) fn started(&self) -> &Started {
        &self.started
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        match self.keeper.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("warning: the keeper of the engines failed: {status}"),
            Err(error) => eprintln!("warning: the keeper of the engines was lost: {error}"),
        }
    }
}

/// Runs the keeper.
pub(super) fn keep(engines: &[Engine]) -> Result<()> {
    let mut running = Running::spawn(engines)?;
    let mut started = running.fill()?;
    if let [engine] = engines {
        for variables in [&mut started.variables, &mut started.user_variables] {
            variables.insert("BOXWOOD_TEST_ENGINE".into(), engine.name().into());
        }
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(&started)?)?;
    stdout.flush()?;
    // Nothing is written: this returns when the other end is closed.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(running);
    Ok(())
}

/// In the order in which they are stopped; the directory is removed last.
struct Running {
    podman: Option<Podman>,
    rootless: Option<Podman>,
    docker: Option<Dockerd>,
    registry: Option<Registry>,
    nsjail: Option<PathBuf>,
    wants_gvisor: bool,
    run_directory: RunDirectory,
}

impl Running {
    fn spawn(engines: &[Engine]) -> Result<Self> {
        let includes = |engine| engines.contains(&engine);
        let mut running = Self {
            podman: None,
            rootless: None,
            docker: None,
            registry: None,
            nsjail: None,
            wants_gvisor: includes(Engine::Gvisor),
            run_directory: RunDirectory::create()?,
        };
        let run_directory = &running.run_directory;
        if includes(Engine::Docker) || includes(Engine::Gvisor) {
            running.docker = Some(Dockerd::spawn(run_directory)?);
        }
        if includes(Engine::Podman) {
            running.podman = Some(Podman::for_root(run_directory)?);
        }
        if includes(Engine::PodmanRootless) {
            running.rootless = Some(Podman::for_user(run_directory)?);
        }
        if engines.iter().any(|engine| *engine != Engine::Nsjail) {
            running.registry = Some(Registry::spawn(run_directory)?);
        }
        if includes(Engine::Nsjail) {
            running.nsjail = Some(nsjail::install()?);
        }
        Ok(running)
    }

    /// Imports the images into all engines, concurrently.
    fn fill(&mut self) -> Result<Started> {
        let debian = self.run_directory.path().join("rootfs.tar");
        let small = self.run_directory.path().join("busybox.tar");
        link_or_copy(&images::debian_tar(), &debian)?;
        link_or_copy(&images::small_tar(), &small)?;
        let mut started = Started::default();

        let Self {
            docker,
            podman,
            rootless,
            ..
        } = self;
        let wants_gvisor = self.wants_gvisor;
        started.no_gvisor = std::thread::scope(|scope| -> Result<Option<String>> {
            let (debian, small) = (&debian, &small);
            let docker = docker.as_mut().map(|docker| {
                scope.spawn(move || -> Result<Option<String>> {
                    docker.wait_until_ready()?;
                    docker.import(small, IMAGE_SMALL)?;
                    docker.import(debian, IMAGE)?;
                    Ok(wants_gvisor.then(|| docker.probe_runsc()).flatten())
                })
            });
            let podmans: Vec<_> = [podman, rootless]
                .into_iter()
                .flatten()
                .map(|podman| {
                    scope.spawn(move || -> Result<()> {
                        podman.import(small, IMAGE_SMALL)?;
                        podman.import(debian, IMAGE)
                    })
                })
                .collect();
            for podman in podmans {
                joined(podman.join())?;
            }
            docker.map_or(Ok(None), |docker| joined(docker.join()))
        })?;

        let mut common = Variables::new();
        if let Some(registry) = &mut self.registry {
            let address = registry.address()?;
            self.fill_registry(&address)?;
            common.insert("BOXWOOD_TEST_REGISTRY".into(), address);
        }
        for (name, value) in [
            ("BOXWOOD_TEST_IMAGE", IMAGE.to_owned()),
            ("BOXWOOD_TEST_IMAGE_SMALL", IMAGE_SMALL.to_owned()),
            ("BOXWOOD_TEST_ROOTFS_TAR", debian.display().to_string()),
            ("BOXWOOD_TEST_ROOTFS_SMALL_TAR", small.display().to_string()),
        ] {
            common.insert(name.into(), value);
        }
        self.add_variables(&common, &mut started)?;
        Ok(started)
    }

    fn fill_registry(&self, address: &str) -> Result<()> {
        for podman in [&self.podman, &self.rootless].into_iter().flatten() {
            podman.set_registry(Some(address))?;
        }
        let to = format!("{address}/{IMAGE_SMALL}");
        if let Some(docker) = &self.docker {
            docker.push(IMAGE_SMALL, &to)
        } else if let Some(podman) = self.podman.as_ref().or(self.rootless.as_ref()) {
            podman.push(IMAGE_SMALL, &to)
        } else {
            Ok(())
        }
    }

    fn add_variables(&self, common: &Variables, started: &mut Started) -> Result<()> {
        let variables = &mut started.variables;
        variables.extend(common.clone());
        if let Some(docker) = &self.docker {
            variables.extend(docker.variables());
        }
        if self.wants_gvisor && started.no_gvisor.is_none() {
            variables.insert("BOXWOOD_TEST_DOCKER_RUNSC".into(), "1".into());
        }
        if let Some(podman) = &self.podman {
            variables.extend(podman.variables());
        }
        if let Some(nsjail) = &self.nsjail {
            variables.insert("BOXWOOD_TEST_NSJAIL".into(), nsjail.display().to_string());
        }
        if let Some(rootless) = &self.rootless {
            started.user_variables.extend(common.clone());
            started.user_variables.extend(rootless.variables());
            let script = rootless.write_as_user(&started.user_variables)?;
            variables.insert("BOXWOOD_TEST_AS_USER".into(), script.display().to_string());
        }
        Ok(())
    }
}

fn joined<T>(result: std::thread::Result<Result<T>>) -> Result<T> {
    match result {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Into the directory of the run, which all users can access; as a hard link if possible.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).with_context(|| format!("`{}` could not be copied", from.display()))?;
    Ok(())
}
