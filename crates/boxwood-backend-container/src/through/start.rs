//! The start of a box that is reached through its engine. Whatever fails, what was made before it goes
//! again.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::ImageName;
use boxwood_backend::{BoxFuture, StartError};
use boxwood_init::{Channel, Facts};
use boxwood_local::{Begun, BoxIds, LocalBox, Remains, Shell, begin, check_required};
use boxwood_policy::AdmittedSpec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::furniture::{self, furniture};
use super::label::{self, Bounds};
use super::program;
use super::relay::Relay;
use super::way::{Place, has_terminals, kernel_of};
use crate::Shared;
use crate::args::{self, Furniture, Inside, Run, Users};
use crate::cli::{CliError, one_line};
use crate::janitor::Janitor;
use crate::sandbox::ContainerBox;
use crate::start::{Failed, INSPECT, RUN, step};

/// For the program to arrive there.
const COPY: Duration = Duration::from_mins(1);
/// For an engine to say why it ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(crate) async fn start(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
    place: Place,
) -> Result<ContainerBox, Failed> {
    let identity = furniture::identity(spec)?;
    let counts_files = kernel_of(&shared.settings).is_none();
    let furniture = furniture(spec, &identity, place, counts_files)?;
    create(shared, spec, image, name, &furniture).await?;
    let volumes = declares_volumes(shared, image).await?;
    let (remains, channel, relay, facts) = attach(shared, name, BoxIds::elsewhere(identity))?;
    let settled = settle(shared, spec, &remains, channel, facts, place, volumes).await;
    match settled {
        Ok(local) => Ok(ContainerBox::through(
            local,
            relay,
            has_terminals(&shared.settings),
        )),
        Err(error) => {
            remains.kill();
            let said = tokio::time::timeout(LAST_WORDS, relay.last_words()).await;
            let said = one_line(&said.unwrap_or_default());
            if let Err(error) = remains.clear().await {
                tracing::warn!(%error, name, "a failed start left something behind");
            }
            // The engine's own reason, where it has one.
            Err(match (error, said) {
                (Unsettled::Silent(_), said) if !said.is_empty() => {
                    Failed::Engine(CliError::Refused { said })
                }
                (Unsettled::Silent(error) | Unsettled::Refused(error), _) => Failed::Start(error),
            })
        }
    }
}

async fn create(
    shared: &Shared,
    spec: &AdmittedSpec,
    image: &ImageName,
    name: &str,
    furniture: &Furniture,
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
        inside: Inside::Furnished(furniture),
    });
    let created = shared.cli.run(create, RUN).await;
    created.map_err(|error| {
        if error.no_such_image() {
            Failed::NoImage
        } else {
            Failed::Engine(error)
        }
    })?;
    let archive = program::archive();
    let copied = shared.cli.feed(args::copy_in(name), &archive[..], COPY);
    copied.await.map_err(Failed::Engine)?;
    Ok(())
}

/// An image may ask for places that can be written whatever its root is, and that nothing bounds.
async fn declares_volumes(shared: &Shared, image: &ImageName) -> Result<bool, Failed> {
    let told = shared.cli.run(args::volumes_of(image.as_str()), INSPECT);
    let told = told.await.map_err(Failed::Engine)?;
    Ok(!matches!(told.trim(), "null" | "{}" | "map[]"))
}

type Attached = (
    Arc<Remains>,
    Channel,
    Arc<Relay>,
    tokio::sync::oneshot::Receiver<Facts>,
);

/// Starts the container; the engine's program that is attached to it stands for it here.
fn attach(shared: &Shared, name: &str, ids: BoxIds) -> Result<Attached, Failed> {
    let mut command = shared.cli.command(args::start_attached(name));
    command.stdin(Stdio::piped());
    let engine = shared.cli.spawn(&mut command).map_err(Failed::Engine)?;
    let pid = engine.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid
        .and_then(Pid::from_raw)
        .ok_or_else(|| step("watch its engine")(io::ErrorKind::NotFound.into()))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| step("watch its engine")(errno.into()))?;
    let record = Record {
        janitor: Arc::clone(&shared.janitor),
        name: name.to_owned(),
    };
    let remains = Remains::new(name.to_owned(), pid.as_raw_nonzero().get(), pidfd, ids)
        .map_err(step("watch its engine"))?
        .with_shell(Box::new(record));
    let (ours, theirs) = Channel::pair().map_err(step("open its channel"))?;
    let (relay, facts) = Relay::begin(engine, theirs).map_err(step("open its channel"))?;
    Ok((Arc::new(remains), ours, relay, facts))
}

enum Unsettled {
    /// Init was not heard of; the engine may know why.
    Silent(StartError),
    Refused(StartError),
}

async fn settle(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    remains: &Arc<Remains>,
    channel: Channel,
    facts: tokio::sync::oneshot::Receiver<Facts>,
    place: Place,
    volumes: bool,
) -> Result<LocalBox, Unsettled> {
    let plan = furniture::plan(spec, remains.ids.identity);
    let Begun {
        link,
        landlock,
        fence,
    } = begin(channel, plan, &[]).await.map_err(Unsettled::Silent)?;
    // They came before the word that it has begun.
    let facts = facts
        .await
        .map_err(|_| Unsettled::Silent(step("hear from init")(io::ErrorKind::NotFound.into())))?;
    for mount in spec.workspace().into_iter().chain(spec.extra_mounts()) {
        furniture::still_there(mount).map_err(Unsettled::Refused)?;
    }
    let bounds = bounds(shared, &remains.name, place).await;
    let label = label::label(shared, spec, &facts, landlock, &bounds, volumes);
    check_required(spec, &label).map_err(Unsettled::Refused)?;
    Ok(LocalBox::new(
        Arc::clone(remains),
        label,
        link,
        fence,
        &shared.host,
    ))
}

/// What cannot be found out proves nothing, and the label says so.
async fn bounds(shared: &Shared, name: &str, place: Place) -> Bounds {
    let question = match place {
        Place::Here => args::pid_of(name),
        Place::Elsewhere => args::limits_of(name),
    };
    let told = shared.cli.run(question, INSPECT).await.unwrap_or_default();
    let mut words = told.split_whitespace();
    match place {
        Place::Here => {
            let pid = words.next().and_then(|pid| pid.parse().ok());
            Bounds::Sandbox(pid.filter(|pid| *pid > 0))
        }
        Place::Elsewhere => {
            Bounds::Engine(words.map(|word| word.parse().unwrap_or_default()).collect())
        }
    }
}

/// What the engine keeps of a box.
struct Record {
    janitor: Arc<Janitor>,
    name: String,
}

impl Shell for Record {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let removed = self.janitor.remove(&self.name).await;
            removed.map_err(io::Error::other)
        })
    }

    /// Such a box ends with its connection: there is nobody to tell, and nothing to let go of.
    fn record(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn let_go(&self) {}
}
