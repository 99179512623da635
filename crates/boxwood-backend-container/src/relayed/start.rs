//! Starts a relayed box. If a step fails, everything created before it is removed.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::ImageName;
use boxwood_backend::{StartError, start_step as step};
use boxwood_init::{Channel, Facts, PROGRAM, PROGRAM_NAME};
use boxwood_local::{BoxIds, BoxResources, LocalBox, Relayed, check_required, start_init};
use boxwood_policy::AdmittedSpec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::access::{Location, has_terminals, kernel_of};
use super::engine_mounts::{self, engine_mounts};
use super::isolation_label::{self, Bounds};
use super::relay::Relay;
use crate::Shared;
use crate::args::{self, EngineMounts, Inside, Run, Users};
use crate::cli::{CliError, one_line};
use crate::container_state::Container;
use crate::start::{Failed, INSPECT, RUN};

/// Timeout for copying init into the container.
const COPY: Duration = Duration::from_mins(1);
/// How long the engine's client may take to exit and report the cause.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn start(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
    location: Location,
) -> Result<Arc<LocalBox>, Failed> {
    let identity = engine_mounts::identity(spec)?;
    let supports_file_limit = kernel_of(&shared.settings).is_none();
    let engine_mounts = engine_mounts(spec, &identity, location, supports_file_limit)?;
    create(shared, spec, image, name, &engine_mounts).await?;
    let volumes = declares_volumes(shared, image).await?;
    let (resources, channel, relay, facts) = attach(shared, name, BoxIds::remote(identity))?;
    let configured = configure(shared, spec, &resources, channel, facts, location, volumes).await;
    match configured {
        Ok(local) => Ok(Arc::new(local.relayed(Relayed {
            terminals: has_terminals(&shared.settings),
            resized: relay.resized,
        }))),
        Err(error) => {
            resources.kill();
            let message = tokio::time::timeout(EXIT_TIMEOUT, relay.last_output()).await;
            let message = one_line(&message.unwrap_or_default());
            resources.clear_failed().await;
            // If init did not reply, the engine's client may report the cause.
            Err(match (error, message) {
                (StartError::Step { .. }, message) if !message.is_empty() => {
                    Failed::Engine(CliError::Refused { message })
                }
                (error, _) => Failed::Start(error),
            })
        }
    }
}

async fn create(
    shared: &Shared,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
    engine_mounts: &EngineMounts,
) -> Result<(), Failed> {
    let labels = shared.owner.labels(spec);
    let create = args::run(&Run {
        engine: shared.settings.engine,
        name,
        labels: &labels,
        image: image.as_str(),
        runtime: shared.settings.runtime.as_deref(),
        limits: Some(spec.limits()),
        read_only: spec.read_only_root(),
        users: Users::Engine,
        inside: Inside::Engine(engine_mounts),
    });
    let created = shared.cli.run(create, RUN).await;
    created.map_err(|error| {
        if error.no_such_image() {
            Failed::NoImage
        } else {
            Failed::Engine(error)
        }
    })?;
    let archive = init_archive().map_err(step("pack the init program"))?;
    let copied = shared.cli.feed(args::copy_in(name), &archive[..], COPY);
    copied.await.map_err(Failed::Engine)?;
    Ok(())
}

/// The init program as a tar archive, which every engine can copy into a container.
fn init_archive() -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(PROGRAM.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, PROGRAM_NAME, PROGRAM)?;
    archive.into_inner()
}

/// Volumes of an image are writable even with a read-only root, and have no size limit.
async fn declares_volumes(shared: &Shared, image: &ImageName) -> Result<bool, Failed> {
    let output = shared.cli.run(args::volumes_of(image.as_str()), INSPECT);
    let output = output.await.map_err(Failed::Engine)?;
    Ok(!matches!(output.trim(), "null" | "{}" | "map[]"))
}

type Attached = (
    Arc<BoxResources>,
    Channel,
    Relay,
    tokio::sync::oneshot::Receiver<Facts>,
);

/// Starts the container. The attached client of the engine represents the box on this machine.
fn attach(shared: &Shared, name: &str, ids: BoxIds) -> Result<Attached, Failed> {
    let mut command = shared.cli.command(args::start_attached(name));
    command.stdin(Stdio::piped());
    let engine = shared.cli.spawn(&mut command).map_err(Failed::Engine)?;
    let pid = engine.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid
        .and_then(Pid::from_raw)
        .ok_or_else(|| step("watch the engine's client")(io::ErrorKind::NotFound.into()))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| step("watch the engine's client")(errno.into()))?;
    let resources = BoxResources::new(name.to_owned(), pid.as_raw_nonzero().get(), pidfd, ids)
        .map_err(step("watch the engine's client"))?
        .with_backend_state(Box::new(Container::new(&shared.cleanup, name, None)));
    let (channel, relay_channel) = Channel::pair().map_err(step("open the channel to init"))?;
    let (relay, facts) =
        Relay::begin(engine, relay_channel).map_err(step("open the channel to init"))?;
    Ok((Arc::new(resources), channel, relay, facts))
}

async fn configure(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    resources: &Arc<BoxResources>,
    channel: Channel,
    facts: tokio::sync::oneshot::Receiver<Facts>,
    location: Location,
    volumes: bool,
) -> Result<LocalBox, StartError> {
    let plan = engine_mounts::plan(spec, resources.ids.identity);
    let init = start_init(channel, plan, &[]).await?;
    // Sent before the message that init is ready.
    let facts = facts.await;
    let facts = facts.map_err(|_| step("receive init's facts")(io::ErrorKind::NotFound.into()))?;
    for mount in spec.workspace().into_iter().chain(spec.extra_mounts()) {
        engine_mounts::check_unchanged(mount)?;
    }
    let bounds = bounds(shared, &resources.name, location).await;
    let label = isolation_label::label(shared, spec, &facts, init.landlock, &bounds, volumes);
    check_required(spec, &label)?;
    Ok(LocalBox::new(
        Arc::clone(resources),
        label,
        init,
        &shared.host,
    ))
}

/// What cannot be determined is reported as missing in the label.
async fn bounds(shared: &Shared, name: &str, location: Location) -> Bounds {
    let args = match location {
        Location::Local => args::pid_of(name),
        Location::Remote => args::limits_of(name),
    };
    let output = shared.cli.run(args, INSPECT).await.unwrap_or_default();
    let mut values = output.split_whitespace();
    match location {
        Location::Local => {
            let pid = values.next().and_then(|pid| pid.parse().ok());
            Bounds::Sandbox(pid.filter(|pid| *pid > 0))
        }
        Location::Remote => Bounds::Engine(
            values
                .map(|value| value.parse().unwrap_or_default())
                .collect(),
        ),
    }
}
