//! From an init that has called to a box that runs programs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::Mechanism;
use boxwood_backend::{StartError, Witness};
use boxwood_init::{Channel, FromInit, InsideNetwork, MountWork, Outlive, Plan, RootPlan, ToInit};
use boxwood_policy::AdmittedSpec;

use crate::areas::{Areas, watched};
use crate::cgroup::Group;
use crate::door::Door;
use crate::environment::environment;
use crate::host::LocalHost;
use crate::link::Link;
use crate::live_mount::{self, Outcome};
use crate::mount_plan::mount_plan;
use crate::remains::Remains;

/// Init answers within milliseconds; a host so slow that it does not is no host for boxes.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a box that has begun is known by.
pub struct Begun {
    pub link: Arc<Link>,
    pub landlock: bool,
    /// Where Landlock lets commands write; empty without it.
    pub fence: Vec<String>,
}

fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

/// Draws the plan of a box. Descriptors are added to `fds`. Blocks for a few system calls per mount.
pub fn plan(
    host: &LocalHost,
    spec: &AdmittedSpec,
    remains: &Remains,
    root: RootPlan,
    network: Option<InsideNetwork>,
    fds: &mut Vec<OwnedFd>,
) -> Result<Plan, StartError> {
    let workspace = spec
        .workspace()
        .map(|mount| mount_plan(host, mount, &remains.ids, fds))
        .transpose()?;
    let mounts = spec
        .extra_mounts()
        .iter()
        .map(|mount| mount_plan(host, mount, &remains.ids, fds))
        .collect::<Result<_, _>>()?;
    let areas = Areas::of(spec);
    let identity = remains.ids.identity;
    let limits = spec.limits();
    let bounded = |group: &Group| !group.unenforced(&limits).contains(&Mechanism::PidsLimit);
    let counted = remains.group.as_ref().is_some_and(bounded);
    Ok(Plan {
        watched: watched(spec, &root),
        root,
        read_only_root: spec.read_only_root(),
        hostname: "box".to_owned(),
        identity,
        workspace_path: spec.mount_path().to_owned(),
        workspace,
        mounts,
        tmp_mb: areas.tmp,
        home_mb: areas.home,
        private_workspace_mb: areas.workspace,
        network,
        cgroup_namespace: remains.group.is_some(),
        process_rlimit: (!counted).then_some(limits.pids),
        landlock: host.landlock,
        environment: environment(identity.home(), identity.command_uid == 0),
        outlive: None,
    })
}

/// Has a mounter furnish a box whose namespaces somebody else made.
pub async fn furnish(
    host: &Arc<LocalHost>,
    remains: &Arc<Remains>,
    plan: &Plan,
    mut fds: Vec<OwnedFd>,
) -> Result<(), StartError> {
    let (host, remains, plan) = (Arc::clone(host), Arc::clone(remains), plan.clone());
    let work = move || {
        let doors = remains
            .doors()
            .ok_or_else(|| step("enter the box")(io::ErrorKind::NotFound.into()))?;
        let places = doors
            .add_to(&mut fds)
            .map_err(step("hand over the box's namespaces"))?;
        // Its namespaces were found by init's number, which is somebody else's once init is dead.
        if !remains.is_alive() {
            return Err(step("furnish it")(io::ErrorKind::BrokenPipe.into()));
        }
        let work = MountWork::Furnish(Box::new(plan));
        let order = live_mount::order(remains.ids.identity, &places, work);
        match live_mount::carry_out(&host, &order, &fds, &remains) {
            Outcome::Done => Ok(()),
            Outcome::Failed { step, source } => Err(StartError::Step { step, source }),
            Outcome::BoxGone => Err(step("furnish it")(io::ErrorKind::BrokenPipe.into())),
        }
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| step("run the mounter")(io::Error::other(error)))?
}

/// The same for a box that outlives the daemon, where this daemon has a successor. The witness is told
/// right before there is anything that could.
pub async fn begin_to_last(
    host: &LocalHost,
    backend: &str,
    remains: &Remains,
    witness: &Witness,
    channel: Channel,
    mut plan: Plan,
    mut fds: Vec<OwnedFd>,
) -> Result<Begun, StartError> {
    if let Some(grace) = host.grace {
        let (door, socket) = Door::build(&host.doors, backend, &remains.name)
            .map_err(step("make its door for the next daemon"))?;
        let handle = door.handle.clone();
        host.spare(&remains.name);
        remains.set_door(door);
        plan.outlive = Some(Outlive {
            door: fds.len(),
            grace_sec: grace.as_secs(),
        });
        fds.push(socket);
        witness
            .about_to_start(handle)
            .await
            .map_err(step("write down that it exists"))?;
    }
    begin(channel, plan, &fds).await
}

/// Sends init its plan and waits for its word.
pub async fn begin(channel: Channel, plan: Plan, fds: &[OwnedFd]) -> Result<Begun, StartError> {
    let fence = plan.writable_places();
    let link = Link::new(channel).map_err(step("open its channel"))?;
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    link.send(&ToInit::Plan(Box::new(plan)), &borrowed)
        .await
        .map_err(step("send its plan"))?;
    match tokio::time::timeout(DEADLINE, link.receive()).await {
        Ok(Ok((FromInit::Ready { landlock, .. }, _))) => Ok(Begun {
            link,
            landlock,
            fence: if landlock { fence } else { Vec::new() },
        }),
        Ok(Ok((FromInit::PlanFailed { step, errno }, _))) => Err(StartError::Step {
            step,
            source: io::Error::from_raw_os_error(errno),
        }),
        Ok(Ok(_)) => Err(step("hear from init")(io::Error::other(
            "an unexpected answer",
        ))),
        Ok(Err(error)) => Err(step("hear from init")(error)),
        Err(_elapsed) => Err(step("hear from init")(io::ErrorKind::TimedOut.into())),
    }
}
