//! Starts a box. If a step fails, everything created before it is removed.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ImageName, with_causes};
use boxwood_backend::{
    ImageError, Images, Progress, StartError, StartRecorder, start_step as step,
};
use boxwood_init::{Channel, RootPlan};
use boxwood_local::{
    BootstrapDir, BoxIds, BoxNamespaces, BoxResources, ConnectedBox, Group, InitConnection,
    LocalBox, next_name,
};
use boxwood_policy::{AdmittedSpec, BoxUser, Image};
use boxwood_sys::procfs;

use crate::args::{self, Inside, Run, Users};
use crate::cli::CliError;
use crate::container_state::{Container, ContainerResources};
use crate::ownership::container_name;
use crate::relayed::{self, Access, Location};
use crate::settings::Engine;
use crate::{Shared, isolation_label};

/// Timeout for creating a container. Long, because a disk may be busy.
pub(crate) const RUN: Duration = Duration::from_mins(1);
/// Timeout for init to connect after that.
const CONNECT: Duration = Duration::from_secs(20);
pub(crate) const INSPECT: Duration = Duration::from_secs(20);

pub(crate) async fn start(
    shared: Arc<Shared>,
    spec: AdmittedSpec,
    progress: Progress,
    recorder: StartRecorder,
) -> Result<Arc<LocalBox>, StartError> {
    shared
        .cleanup
        .remove_orphans_once()
        .await
        .map_err(|error| unavailable(&shared, &error))?;
    let image = image(&shared, &spec)?;
    let started = match attempt(&shared, &spec, &image, &recorder).await {
        Err(Failed::NoImage) if shared.settings.pull => {
            pull(&shared, &image, &progress).await?;
            attempt(&shared, &spec, &image, &recorder).await
        }
        started => started,
    };
    match started {
        Ok(started) => Ok(started),
        Err(failed) => Err(failed.into_start_error(&shared, image.as_str())),
    }
}

/// Reaches the box directly or through the engine.
async fn attempt(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    recorder: &StartRecorder,
) -> Result<Arc<LocalBox>, Failed> {
    let location = match shared.access().await {
        Access::Through(location) => location,
        Access::Direct => match direct(shared, spec, image, recorder).await {
            Err(Failed::Remote { why }) => {
                tracing::warn!(
                    why,
                    engine = shared.settings.engine.name(),
                    "the engine does not run on this machine; relaying boxes through it from now on"
                );
                shared.access.set_remote();
                Location::Remote
            }
            started => return started,
        },
    };
    let name = new_name(spec)?;
    let started = relayed::start(shared, spec, image, &name, location).await;
    match started {
        Err(failed) => Err(clear(shared, &name, failed).await),
        started => started,
    }
}

fn new_name(spec: &AdmittedSpec) -> Result<String, StartError> {
    container_name(spec.session().as_str()).map_err(step("choose a name"))
}

/// Removes the container after a failure: the engine may have created it, or may still do so. Returns the
/// cause.
async fn clear(shared: &Shared, name: &str, failed: Failed) -> Failed {
    let failed = match failed {
        Failed::Engine(error) => Failed::Engine(shared.cli.explain(error).await),
        failed => failed,
    };
    if matches!(&failed, Failed::Engine(error) if error.engine_is_unavailable()) {
        shared.cleanup.remove_later(name);
    } else if let Err(error) = shared.cleanup.remove(name).await {
        tracing::warn!(error = %with_causes(&error), name, "failed to remove the container of a failed start");
    }
    failed
}

async fn direct(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    recorder: &StartRecorder,
) -> Result<Arc<LocalBox>, Failed> {
    let name = new_name(spec)?;
    let (resources, channel) = match create(shared, spec, image, &name).await {
        Ok(created) => created,
        Err(failed) => return Err(clear(shared, &name, failed).await),
    };
    let connected = ConnectedBox {
        host: &shared.host,
        backend: shared.settings.engine.name(),
        spec,
        recorder,
        resources: Arc::new(resources),
        channel,
    };
    let label = |resources: &BoxResources, landlock| {
        isolation_label::label(shared, spec, resources, landlock)
    };
    Ok(connected.start(|_, _| Ok(RootPlan::Engine), label).await?)
}

/// The image name that the spec refers to.
fn image(shared: &Shared, spec: &AdmittedSpec) -> Result<ImageName, StartError> {
    let text = match spec.image() {
        Image::Named(name) => name,
        Image::Default => &shared.settings.image,
        Image::Directory { name, path } => {
            return Err(StartError::ImageNotFound {
                image: name.clone(),
                hint: format!(
                    "`[images]` maps it to a directory, which only the native backend supports; \
                     import it into the engine: `boxwood image import {} NAME --backend {}`",
                    path.display(),
                    shared.settings.engine.name()
                ),
            });
        }
    };
    ImageName::new(text).map_err(|error| StartError::ImageNotFound {
        image: text.clone(),
        hint: error.to_string(),
    })
}

async fn pull(shared: &Shared, image: &ImageName, progress: &Progress) -> Result<(), StartError> {
    match shared.images.pull(image, progress).await {
        Ok(_) => Ok(()),
        Err(ImageError::Unavailable { why, hint }) => Err(StartError::Unavailable { why, hint }),
        Err(error) => Err(StartError::ImageNotFound {
            image: image.as_str().to_owned(),
            hint: match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            },
        }),
    }
}

pub(crate) enum Failed {
    NoImage,
    /// The engine works but does not share this machine's file system.
    Remote {
        why: String,
    },
    Engine(CliError),
    Start(StartError),
}

impl From<StartError> for Failed {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl Failed {
    fn into_start_error(self, shared: &Shared, image: &str) -> StartError {
        match self {
            Self::Start(error) => error,
            Self::Remote { why } => step("accept init's connection")(io::Error::other(why)),
            Self::Engine(error) => refused(shared, &error),
            Self::NoImage => StartError::ImageNotFound {
                image: image.to_owned(),
                hint: format!(
                    "{engine} does not have it, and `[{engine}] pull` is \"never\" or did not provide it: `boxwood \
                     image pull {image} --backend {engine}`, or import one with `boxwood image import`",
                    engine = shared.settings.engine.name()
                ),
            },
        }
    }
}

/// Maps an error of the engine to one of the start.
fn refused(shared: &Shared, error: &CliError) -> StartError {
    if error.engine_is_unavailable() || error.storage_is_blocked() {
        return unavailable(shared, error);
    }
    step("create the container")(io::Error::other(with_causes(error)))
}

/// The error for an engine that is unavailable or whose storage is blocked.
pub(crate) fn unavailable(shared: &Shared, error: &CliError) -> StartError {
    let hint = match (error, shared.settings.engine) {
        (CliError::Program { .. }, engine) => format!(
            "install it (`apt-get install {}`), or set `[{}] program`",
            match engine {
                Engine::Docker => "docker.io",
                Engine::Podman => "podman",
            },
            engine.name()
        ),
        (_, Engine::Docker) => {
            "start it (`systemctl start docker`), and check that this user may access its socket"
                .to_owned()
        }
        (error, Engine::Podman) if error.storage_is_blocked() => {
            "its storage is blocked: `podman system migrate` frees it, and `skip_mount_home = \"true\"` \
             in its `storage.conf` keeps it from happening (docs/backends.md)"
                .to_owned()
        }
        (_, Engine::Podman) => "check the output of `podman info`".to_owned(),
    };
    StartError::Unavailable {
        why: format!(
            "{} is not available: {}",
            shared.settings.engine.name(),
            with_causes(error)
        ),
        hint,
    }
}

/// Creates a container whose init has connected.
async fn create(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
) -> Result<(BoxResources, Channel), Failed> {
    let host = &shared.host;
    let bootstrap =
        BootstrapDir::create(host, &next_name()).map_err(step("create the bootstrap directory"))?;
    let (users, range) = users(shared, spec.user())?;
    let labels = shared.owner.labels(spec);
    let run = args::run(&Run {
        engine: shared.settings.engine,
        name,
        labels: &labels,
        image: image.as_str(),
        runtime: shared.settings.runtime.as_deref(),
        limits: host.mapping.is_root().then(|| spec.limits()),
        read_only: spec.read_only_root(),
        users,
        inside: Inside::Bootstrap(bootstrap.directory()),
    });
    let init = launch(shared, run, &bootstrap).await?;
    check_identity(shared, name, &init).await?;
    let ids = BoxIds::observed(init.pid, spec.user()).map_err(step("read its uid map"))?;
    if ids.is_hosts_own() && spec.user() == BoxUser::Root {
        return Err(Failed::Start(StartError::Unsupported {
            what: format!(
                "`user = \"root\"` needs a user namespace, and {} creates none: root in the box would \
                 be the host's",
                shared.settings.engine.name()
            ),
        }));
    }
    let init_uid = ids.init_uid;
    let container = Container::new(
        &shared.cleanup,
        name,
        Some(ContainerResources { bootstrap, range }),
    );
    let pid = init.pid;
    let mut resources = BoxResources::new(name.to_owned(), pid, init.pidfd, ids)
        .map_err(step("watch the pidfd of init"))?
        .with_backend_state(Box::new(container));
    resources
        .set_namespaces(BoxNamespaces::open(resources.init).map_err(step("open its namespaces"))?);
    resources.group = Some(Group::observed(pid, init_uid).map_err(step("find its cgroups"))?);
    Ok((resources, init.channel))
}

/// The mapping of the box's users, and the range of ids allocated for it.
fn users(shared: &Shared, user: BoxUser) -> Result<(Users, Option<BoxIds>), StartError> {
    match (shared.settings.engine, shared.host.mapping.is_root()) {
        (Engine::Podman, true) => {
            let range = shared
                .host
                .mapping
                .allocate(user)
                .map_err(step("allocate its uids"))?;
            let first = range.command_uid - range.identity.command_uid;
            Ok((Users::Range { first }, Some(range)))
        }
        (Engine::Podman, false) if user == BoxUser::Box => Ok((Users::Caller, None)),
        _ => Ok((Users::Engine, None)),
    }
}

/// Starts the container; returns when the engine has reported success and init has connected.
async fn launch(
    shared: &Shared,
    run: Vec<std::ffi::OsString>,
    bootstrap: &BootstrapDir,
) -> Result<InitConnection, Failed> {
    let ran = shared.cli.run_in(bootstrap.directory(), run, RUN);
    let connected = bootstrap.accept();
    tokio::pin!(ran, connected);
    let early = tokio::select! {
        outcome = &mut ran => {
            outcome.map_err(|error| {
                if error.no_such_image() {
                    Failed::NoImage
                } else if relayed::is_remote(&error) {
                    Failed::Remote {
                        why: error.to_string(),
                    }
                } else {
                    Failed::Engine(error)
                }
            })?;
            None
        }
        init = &mut connected => Some(init),
    };
    let init = match early {
        Some(init) => {
            ran.await.map_err(Failed::Engine)?;
            init
        }
        None => match tokio::time::timeout(CONNECT, connected).await {
            Ok(init) => init,
            Err(_elapsed) => return Err(explain_timeout(shared).await),
        },
    };
    Ok(init.map_err(step("accept init's connection"))?)
}

/// Why init did not connect. One slow or broken box must not change how all others are reached, so the engine
/// counts as remote only if it runs on another kernel.
async fn explain_timeout(shared: &Shared) -> Failed {
    let output = shared
        .cli
        .run(args::kernel(shared.settings.engine), INSPECT);
    let own_kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match output.await {
        Ok(output) if output.trim() != own_kernel.trim() => Failed::Remote {
            why: format!(
                "init did not connect, and the engine runs on kernel {}",
                output.trim()
            ),
        },
        _ => Failed::Start(step("accept init's connection")(
            io::ErrorKind::TimedOut.into(),
        )),
    }
}

/// Checks that the connected process is the first process of this container.
async fn check_identity(shared: &Shared, name: &str, init: &InitConnection) -> Result<(), Failed> {
    let output = shared
        .cli
        .run(args::pid_of(name), INSPECT)
        .await
        .map_err(Failed::Engine)?;
    let pid = output.split_whitespace().next().unwrap_or_default();
    let why = if pid == init.pid.to_string() {
        match procfs::is_first_of_namespace(init.pid) {
            Ok(true) => return Ok(()),
            Ok(false) => "init is not the first process of a PID namespace".to_owned(),
            Err(error) => error.to_string(),
        }
    } else {
        format!(
            "the engine reports init as process {pid}, but process {} connected",
            init.pid
        )
    };
    Err(step("check the pid of init")(io::Error::other(why)).into())
}
