//! The start of a box, step by step. Whatever fails, what was made before it goes again.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ImageName, Network};
use boxwood_backend::{ImageError, Images, Progress, StartError, Witness};
use boxwood_init::RootPlan;
use boxwood_local::{
    Begun, BoxIds, Caller, Doors, Group, LocalBox, Meeting, Remains, attach, begin_to_last,
    check_required, furnish, next_name, plan,
};
use boxwood_policy::{AdmittedSpec, BoxUser, Image};

use crate::args::{self, Inside, Run, Users};
use crate::cli::CliError;
use crate::labels::container_name;
use crate::sandbox::ContainerBox;
use crate::settings::Engine;
use crate::shell::Container;
use crate::through::{self, Place, Way};
use crate::{Shared, label};

/// For the engine to make a container. Generous: a busy disk is not a broken engine.
pub(crate) const RUN: Duration = Duration::from_mins(1);
/// From then on, for init to call.
const CALL: Duration = Duration::from_secs(20);
pub(crate) const INSPECT: Duration = Duration::from_secs(20);

pub(crate) async fn start(
    shared: Arc<Shared>,
    spec: AdmittedSpec,
    progress: Progress,
    witness: Witness,
) -> Result<Arc<ContainerBox>, StartError> {
    shared
        .janitor
        .sweep_once()
        .await
        .map_err(|error| unavailable(&shared, &error))?;
    let image = image(&shared, &spec)?;
    let started = match attempt(&shared, &spec, &image, &witness).await {
        Err(Failed::NoImage) if shared.settings.pull => {
            pull(&shared, &image, &progress).await?;
            attempt(&shared, &spec, &image, &witness).await
        }
        started => started,
    };
    match started {
        Ok(started) => Ok(Arc::new(started)),
        Err(failed) => Err(failed.into_start_error(&shared, image.as_str())),
    }
}

/// By whichever way leads into boxes of this engine.
async fn attempt(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    witness: &Witness,
) -> Result<ContainerBox, Failed> {
    let place = match shared.way().await {
        Way::Through(place) => place,
        Way::Direct => match direct(shared, spec, image, witness).await {
            Err(Failed::NotHere { why }) => {
                tracing::warn!(
                    why,
                    engine = shared.settings.engine.name(),
                    "the engine does not run on this machine; boxes are reached through it from now on"
                );
                shared.ways.is_elsewhere();
                Place::Elsewhere
            }
            started => return started,
        },
    };
    let name = new_name(spec)?;
    let started = through::start(shared, spec, image, &name, place).await;
    match started {
        Err(failed) => Err(clear(shared, &name, failed).await),
        started => started,
    }
}

fn new_name(spec: &AdmittedSpec) -> Result<String, StartError> {
    container_name(spec.session().as_str()).map_err(step("name it"))
}

/// After a failure: the engine may have got further than we heard, or may yet do so. Why it failed.
async fn clear(shared: &Shared, name: &str, failed: Failed) -> Failed {
    let failed = match failed {
        Failed::Engine(error) => Failed::Engine(shared.cli.explain(error).await),
        failed => failed,
    };
    if matches!(&failed, Failed::Engine(error) if error.engine_is_away()) {
        shared.janitor.remove_unborn(name);
    } else if let Err(error) = shared.janitor.remove(name).await {
        tracing::warn!(%error, name, "a failed start left a container behind");
    }
    failed
}

async fn direct(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    witness: &Witness,
) -> Result<ContainerBox, Failed> {
    let name = new_name(spec)?;
    let Made { remains, caller } = match make(shared, spec, image, &name).await {
        Ok(made) => made,
        Err(failed) => return Err(clear(shared, &name, failed).await),
    };
    match settle_in(shared, spec, &remains, caller, witness).await {
        Ok(begun) => Ok(ContainerBox::direct(begun)),
        Err(error) => {
            if let Err(error) = remains.clear().await {
                tracing::warn!(%error, name, "a failed start left something behind");
            }
            Err(error.into())
        }
    }
}

pub(crate) fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

/// The image that a spec means here.
fn image(shared: &Shared, spec: &AdmittedSpec) -> Result<ImageName, StartError> {
    let text = match spec.image() {
        Image::Named(name) => name,
        Image::Default => &shared.settings.image,
        Image::Directory { name, path } => {
            return Err(StartError::ImageNotFound {
                image: name.clone(),
                hint: format!(
                    "`[images]` names a directory, which only the native backend can start from; \
                     give it to the engine: `boxwood image import {} NAME --backend {}`",
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

/// A container whose init has called.
struct Made {
    remains: Arc<Remains>,
    caller: boxwood_init::Channel,
}

pub(crate) enum Failed {
    NoImage,
    /// The engine answers, and what is on this machine is not where it is.
    NotHere {
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
            Self::NotHere { why } => step("hear from init")(io::Error::other(why)),
            Self::Engine(error) => refused(shared, &error),
            Self::NoImage => StartError::ImageNotFound {
                image: image.to_owned(),
                hint: format!(
                    "{engine} does not have it and may not pull: `boxwood image pull {image} \
                     --backend {engine}`, or import one with `boxwood image import`",
                    engine = shared.settings.engine.name()
                ),
            },
        }
    }
}

/// What an engine said, as what it means for a start.
fn refused(shared: &Shared, error: &CliError) -> StartError {
    if error.engine_is_away() || error.storage_is_stuck() {
        return unavailable(shared, error);
    }
    step("have the engine make it")(io::Error::other(boxwood_local::chain(error)))
}

/// An engine that is not there, or that cannot even say what it has.
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
            "start it (`systemctl start docker`), and see that this user may use its socket"
                .to_owned()
        }
        (error, Engine::Podman) if error.storage_is_stuck() => {
            "its storage is stuck: `podman system migrate` frees it, and `skip_mount_home = \"true\"` \
             in its `storage.conf` keeps it from happening (docs/backends.md)"
                .to_owned()
        }
        (_, Engine::Podman) => "see what `podman info` says".to_owned(),
    };
    StartError::Unavailable {
        why: format!(
            "{} is not available: {}",
            shared.settings.engine.name(),
            boxwood_local::chain(error)
        ),
        hint,
    }
}

async fn make(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
) -> Result<Made, Failed> {
    let host = &shared.host;
    let meeting =
        Meeting::arrange(host, &next_name()).map_err(step("arrange its meeting place"))?;
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
        inside: Inside::Meeting(meeting.directory()),
    });
    let caller = launch(shared, run, &meeting).await?;
    check_identity(shared, name, &caller).await?;
    let ids = BoxIds::observed(caller.pid, spec.user()).map_err(step("read its user map"))?;
    if ids.is_hosts_own() && spec.user() == BoxUser::Root {
        return Err(Failed::Start(StartError::Unsupported {
            what: format!(
                "`user = \"root\"` needs a user namespace, and {} makes none: root in the box would \
                 be the host's",
                shared.settings.engine.name()
            ),
        }));
    }
    let init_uid = ids.init_uid;
    let container = Container::made(&shared.janitor, name, meeting, range);
    let Caller {
        channel,
        pid,
        pidfd,
    } = caller;
    let mut remains = Remains::new(name.to_owned(), pid, pidfd, ids)
        .map_err(step("watch its init"))?
        .with_shell(Box::new(container));
    remains.set_doors(Doors::open(remains.init).map_err(step("open its namespaces"))?);
    remains.group = Some(Group::observed(pid, init_uid).map_err(step("find its cgroups"))?);
    Ok(Made {
        remains: Arc::new(remains),
        caller: channel,
    })
}

/// Who the box's users are on the host, and the range that is theirs meanwhile.
fn users(shared: &Shared, user: BoxUser) -> Result<(Users, Option<BoxIds>), StartError> {
    match (shared.settings.engine, shared.host.mapping.is_root()) {
        (Engine::Podman, true) => {
            let range = shared
                .host
                .mapping
                .allocate(user)
                .map_err(step("find ids for it"))?;
            let first = range.command_uid - range.identity.command_uid;
            Ok((Users::Range { first }, Some(range)))
        }
        (Engine::Podman, false) if user == BoxUser::Box => Ok((Users::Caller, None)),
        _ => Ok((Users::Engine, None)),
    }
}

/// Has the engine start the container, until it has said so and init has called.
async fn launch(
    shared: &Shared,
    run: Vec<std::ffi::OsString>,
    meeting: &Meeting,
) -> Result<Caller, Failed> {
    let ran = shared.cli.run_in(meeting.directory(), run, RUN);
    let called = meeting.call();
    tokio::pin!(ran, called);
    let early = tokio::select! {
        outcome = &mut ran => {
            outcome.map_err(|error| {
                if error.no_such_image() {
                    Failed::NoImage
                } else if through::is_elsewhere(&error) {
                    Failed::NotHere {
                        why: error.to_string(),
                    }
                } else {
                    Failed::Engine(error)
                }
            })?;
            None
        }
        caller = &mut called => Some(caller),
    };
    let caller = match early {
        Some(caller) => {
            ran.await.map_err(Failed::Engine)?;
            caller
        }
        None => match tokio::time::timeout(CALL, called).await {
            Ok(caller) => caller,
            Err(_elapsed) => return Err(silent(shared).await),
        },
    };
    Ok(caller.map_err(step("hear from init"))?)
}

/// Why nobody called from a box that was started. One slow or broken box must not change how all others
/// are reached: the engine is elsewhere only when it runs on another kernel.
async fn silent(shared: &Shared) -> Failed {
    let told = shared
        .cli
        .run(args::kernel(shared.settings.engine), INSPECT);
    let ours = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match told.await {
        Ok(told) if told.trim() != ours.trim() => Failed::NotHere {
            why: format!(
                "it started the box, nobody called from there, and it runs on kernel {}",
                told.trim()
            ),
        },
        _ => Failed::Start(step("hear from init")(io::ErrorKind::TimedOut.into())),
    }
}

/// Whoever called is the first process of this very container, or nobody we talk to.
async fn check_identity(shared: &Shared, name: &str, caller: &Caller) -> Result<(), Failed> {
    let told = shared
        .cli
        .run(args::pid_of(name), INSPECT)
        .await
        .map_err(Failed::Engine)?;
    let wrong = |why: String| Failed::Start(step("know its init")(io::Error::other(why)));
    let pid = told.split_whitespace().next().unwrap_or_default();
    if pid != caller.pid.to_string() {
        return Err(wrong(format!(
            "the engine says that it is process {pid}, and process {} called",
            caller.pid
        )));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid))
        .map_err(|error| wrong(error.to_string()))?;
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    match own.map(|numbers| numbers.split_whitespace().collect::<Vec<_>>()) {
        Some(numbers) if numbers.len() > 1 && numbers.last() == Some(&"1") => Ok(()),
        _ => Err(wrong(
            "it is not the first process of a namespace".to_owned(),
        )),
    }
}

/// Furnishes the container, lets init begin, and sees what is in force.
async fn settle_in(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    remains: &Arc<Remains>,
    channel: boxwood_init::Channel,
    witness: &Witness,
) -> Result<LocalBox, StartError> {
    let host = &shared.host;
    let network = match spec.network() {
        Network::Off => None,
        Network::On => Some(attach(host, remains).await?),
    };
    let mut fds = Vec::new();
    let plan = plan(host, spec, remains, RootPlan::Engine, network, &mut fds)?;
    furnish(host, remains, &plan, fds).await?;
    let Begun {
        link,
        landlock,
        fence,
    } = begin_to_last(
        host,
        shared.settings.engine.name(),
        remains,
        witness,
        channel,
        plan,
        Vec::new(),
    )
    .await?;
    let label = label::label(shared, spec, remains, landlock)?;
    check_required(spec, &label)?;
    Ok(LocalBox::new(Arc::clone(remains), label, link, fence, host))
}
