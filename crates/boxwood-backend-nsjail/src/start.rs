//! The start of a box, step by step. Whatever fails, what was made before it goes again.

use std::io;
use std::sync::Arc;

use boxwood_api::{IsolationLabel, Network};
use boxwood_backend::{StartError, Witness};
use boxwood_init::{Channel, RootPlan};
use boxwood_local::{
    Begun, Caller, Doors, Group, LocalBox, Remains, attach, begin_to_last, check_required, furnish,
    next_name, plan,
};
use boxwood_policy::{AdmittedSpec, Image};

use crate::{NAME, Shared, jail, label, program};

pub(crate) async fn start(
    shared: Arc<Shared>,
    spec: AdmittedSpec,
    witness: Witness,
) -> Result<Arc<LocalBox>, StartError> {
    refuse_images(&spec)?;
    let (remains, channel) = open(&shared, &spec).await?;
    let remains = Arc::new(remains);
    match carry_out(&shared, &spec, &remains, channel, &witness).await {
        Ok((Begun { link, fence, .. }, label)) => Ok(Arc::new(LocalBox::new(
            remains,
            label,
            link,
            fence,
            &shared.host,
        ))),
        Err(error) => {
            clear(&remains).await;
            Err(error)
        }
    }
}

fn refuse_images(spec: &AdmittedSpec) -> Result<(), StartError> {
    match spec.image() {
        Image::Default => Ok(()),
        image => Err(StartError::Unsupported {
            what: format!(
                "nsjail boxes have the host's own system directories and cannot start from image \
                 `{}`; the native, docker and podman backends can",
                image.name()
            ),
        }),
    }
}

fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

async fn clear(remains: &Remains) {
    if let Err(error) = remains.clear().await {
        tracing::warn!(%error, name = remains.name, "a failed start left something behind");
    }
}

/// What of the host's a jail needs, or why there is none.
pub(crate) fn unavailable(shared: &Shared) -> Option<StartError> {
    (!shared.host.mapping.is_root()).then(|| StartError::Unavailable {
        why: "nsjail boxes need a daemon that runs as root".to_owned(),
        hint: "run the daemon as root, or use the native backend, which needs nothing installed"
            .to_owned(),
    })
}

/// A jail with an init that waits for its plan, in groups of its own.
async fn open(shared: &Shared, spec: &AdmittedSpec) -> Result<(Remains, Channel), StartError> {
    if let Some(error) = unavailable(shared) {
        return Err(error);
    }
    let host = &shared.host;
    let ids = host
        .mapping
        .allocate(spec.user())
        .map_err(step("find uids for it"))?;
    let name = next_name();
    let nsjail = program::find(&shared.settings.program)?;
    let (jail, caller) = jail::open(host, &nsjail, &name, &ids).await?;
    let Caller {
        channel,
        pid,
        pidfd,
    } = caller;
    let remains = Remains::new(name, pid, pidfd, ids).map_err(step("watch its init"))?;
    let mut remains = remains.with_shell(Box::new(jail));
    if let Err(error) = settle(shared, &mut remains, pid) {
        clear(&remains).await;
        return Err(error);
    }
    Ok((remains, channel))
}

/// A few short system calls.
fn settle(shared: &Shared, remains: &mut Remains, pid: i32) -> Result<(), StartError> {
    let doors = Doors::open(remains.init).map_err(step("open its namespaces"))?;
    remains.set_doors(doors);
    let cgroups = &shared.host.cgroups;
    if cgroups.any() {
        let group = Group::create(cgroups, &remains.name, remains.ids.init_uid)
            .map_err(step("make its cgroups"))?;
        let group = remains.group.insert(group);
        group.add(pid).map_err(step("move it into its cgroups"))?;
    }
    Ok(())
}

async fn carry_out(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    remains: &Arc<Remains>,
    channel: Channel,
    witness: &Witness,
) -> Result<(Begun, IsolationLabel), StartError> {
    let host = &shared.host;
    if let Some(group) = &remains.group {
        group
            .limit(&spec.limits())
            .map_err(step("set its limits"))?;
    }
    let network = match spec.network() {
        Network::Off => None,
        Network::On => Some(attach(host, remains).await?),
    };
    let mut fds = Vec::new();
    let plan = plan(host, spec, remains, RootPlan::Jail, network, &mut fds)?;
    furnish(host, remains, &plan, fds).await?;
    let begun = begin_to_last(host, NAME, remains, witness, channel, plan, Vec::new()).await?;
    let label = label::label(shared, spec, remains, begun.landlock)
        .map_err(step("see what is in force"))?;
    check_required(spec, &label)?;
    Ok((begun, label))
}
