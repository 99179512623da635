//! Starts a box from an init that has connected: plan, root file system, and the first exchange.

pub(crate) mod bootstrap;
pub(crate) mod environment;
pub(crate) mod task;
pub(crate) mod tmpfs_sizes;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{IsolationLabel, Mechanism, Network};
use boxwood_backend::{StartError, StartRecorder, start_step as step};
use boxwood_init::{Channel, FromInit, InsideNetwork, MountWork, Plan, Recovery, RootPlan, ToInit};
use boxwood_policy::AdmittedSpec;

use crate::adopt::recovery_socket;
use crate::cgroup::Group;
use crate::host::LocalHost;
use crate::label::check_required;
use crate::mounts::live::{self as live_mount, HelperError};
use crate::mounts::plan::mount_plan;
use crate::network::outbound::attach;
use crate::sandbox::LocalBox;
use crate::sandbox::link::Link;
use crate::sandbox::resources::BoxResources;
use crate::start::environment::environment;
use crate::start::tmpfs_sizes::{TmpfsSizes, quota_limits};

/// Init answers within milliseconds. This deadline only covers an overloaded host.
const DEADLINE: Duration = Duration::from_secs(30);

/// An init that has applied its plan.
pub struct StartedInit {
    pub(crate) link: Arc<Link>,
    pub landlock: bool,
    /// Paths that Landlock lets commands write; empty without Landlock.
    pub(crate) writable_paths: Vec<String>,
}

/// A box whose init has connected and waits for its plan.
pub struct ConnectedBox<'a> {
    pub host: &'a Arc<LocalHost>,
    pub backend: &'a str,
    pub spec: &'a AdmittedSpec,
    pub recorder: &'a StartRecorder,
    pub resources: Arc<BoxResources>,
    pub channel: Channel,
}

impl ConnectedBox<'_> {
    /// Completes the start. `root` may add descriptors for its plan; `label` gets whether Landlock is in force.
    /// On error the box is removed.
    pub async fn start(
        self,
        root: impl FnOnce(&BoxResources, &mut Vec<OwnedFd>) -> Result<RootPlan, StartError> + Send,
        label: impl FnOnce(&BoxResources, bool) -> Result<IsolationLabel, StartError> + Send,
    ) -> Result<Arc<LocalBox>, StartError> {
        let resources = Arc::clone(&self.resources);
        let started = self.try_start(root, label).await;
        if started.is_err() {
            resources.clear_failed().await;
        }
        started
    }

    async fn try_start(
        self,
        root: impl FnOnce(&BoxResources, &mut Vec<OwnedFd>) -> Result<RootPlan, StartError> + Send,
        label: impl FnOnce(&BoxResources, bool) -> Result<IsolationLabel, StartError> + Send,
    ) -> Result<Arc<LocalBox>, StartError> {
        let (host, spec, resources) = (self.host, self.spec, &self.resources);
        if let Some(group) = &resources.group {
            group
                .limit(&spec.limits())
                .map_err(step("set its limits"))?;
        }
        let network = match spec.network() {
            Network::Off => None,
            Network::On => Some(attach(host, resources).await?),
        };
        // A few short system calls per mount: not worth a blocking thread.
        let mut fds = Vec::new();
        let root = root(resources, &mut fds)?;
        let mut plan = plan(host, spec, resources, root, network, &mut fds)?;
        if matches!(plan.root, RootPlan::Engine | RootPlan::Jail) {
            populate_rootfs(host, resources, &plan, std::mem::take(&mut fds)).await?;
        }
        self.make_adoptable(&mut plan, &mut fds).await?;
        let init = start_init(self.channel, plan, &fds).await?;
        let label = label(resources, init.landlock)?;
        check_required(spec, &label)?;
        let resources = Arc::clone(resources);
        Ok(Arc::new(LocalBox::new(resources, label, init, host)))
    }

    /// Lets the box outlive this daemon. The recorder is called before the plan is sent, so no box exists
    /// without a record.
    async fn make_adoptable(
        &self,
        plan: &mut Plan,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), StartError> {
        let Some(grace) = self.host.grace else {
            return Ok(());
        };
        let name = &self.resources.name;
        let (handle, socket) = recovery_socket::create(&self.host.recovery_dir, self.backend, name)
            .map_err(step("create the recovery socket"))?;
        self.host.mark_owned(name);
        self.resources.set_handle(handle.clone());
        plan.recovery = Some(Recovery {
            listener: fds.len(),
            grace_sec: grace.as_secs(),
        });
        fds.push(socket);
        let recorded = self.recorder.record(handle).await;
        recorded.map_err(step("record it in the ledger"))
    }
}

/// Builds the plan of a box and appends its descriptors to `fds`. Blocks for a few system calls per mount.
fn plan(
    host: &LocalHost,
    spec: &AdmittedSpec,
    resources: &BoxResources,
    root: RootPlan,
    network: Option<InsideNetwork>,
    fds: &mut Vec<OwnedFd>,
) -> Result<Plan, StartError> {
    let workspace = spec
        .workspace()
        .map(|mount| mount_plan(host, mount, &resources.ids, fds))
        .transpose()?;
    let mounts = spec
        .extra_mounts()
        .iter()
        .map(|mount| mount_plan(host, mount, &resources.ids, fds))
        .collect::<Result<_, _>>()?;
    let areas = TmpfsSizes::of(spec);
    let identity = resources.ids.identity;
    let limits = spec.limits();
    let bounded = |group: &Group| !group.unenforced(&limits).contains(&Mechanism::PidsLimit);
    let counted = resources.group.as_ref().is_some_and(bounded);
    Ok(Plan {
        watched: quota_limits(spec, &root),
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
        cgroup_namespace: resources.group.is_some(),
        process_rlimit: (!counted).then_some(limits.pids),
        landlock: host.landlock,
        environment: environment(identity.home(), identity.command_uid == 0),
        recovery: None,
    })
}

/// Populates the root file system of a box whose namespaces were created by an engine, with a mount helper.
async fn populate_rootfs(
    host: &Arc<LocalHost>,
    resources: &Arc<BoxResources>,
    plan: &Plan,
    fds: Vec<OwnedFd>,
) -> Result<(), StartError> {
    let (host, resources, plan) = (Arc::clone(host), Arc::clone(resources), plan.clone());
    let work = move || {
        let work = MountWork::PopulateRootfs(Box::new(plan));
        live_mount::carry_out(&host, &resources, work, fds).map_err(|error| match error {
            HelperError::Step { step, source } => StartError::Step { step, source },
            HelperError::BoxGone => {
                step("populate its root file system")(io::ErrorKind::BrokenPipe.into())
            }
        })
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| step("run the mount helper")(io::Error::other(error)))?
}

/// Sends the plan to init and waits until init is ready.
pub async fn start_init(
    channel: Channel,
    plan: Plan,
    fds: &[OwnedFd],
) -> Result<StartedInit, StartError> {
    let writable_paths = plan.writable_paths();
    let link = Link::new(channel).map_err(step("open its channel"))?;
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    link.send(&ToInit::Plan(Box::new(plan)), &borrowed)
        .await
        .map_err(step("send its plan"))?;
    match tokio::time::timeout(DEADLINE, link.receive()).await {
        Ok(Ok((FromInit::Ready { landlock, .. }, _))) => Ok(StartedInit {
            link,
            landlock,
            writable_paths: if landlock { writable_paths } else { Vec::new() },
        }),
        Ok(Ok((FromInit::PlanFailed { step, errno }, _))) => Err(StartError::Step {
            step,
            source: io::Error::from_raw_os_error(errno),
        }),
        Ok(Ok(_)) => Err(step("receive init's reply")(io::Error::other(
            "unexpected message from init",
        ))),
        Ok(Err(error)) => Err(step("receive init's reply")(error)),
        Err(_elapsed) => Err(step("receive init's reply")(io::ErrorKind::TimedOut.into())),
    }
}
