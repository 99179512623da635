//! Starts a box. If a step fails, everything created before it is removed.

use std::sync::Arc;

use boxwood_backend::{StartError, StartRecorder, start_step as step};
use boxwood_init::{Channel, RootPlan};
use boxwood_local::{
    BoxNamespaces, BoxResources, ConnectedBox, Group, LocalBox, host_lacks, label, next_name,
    observed_lacks, own_kernel_lacks,
};
use boxwood_policy::{AdmittedSpec, Image};

use crate::{NAME, NsjailBackend, jail, program};

pub(crate) async fn start(
    backend: NsjailBackend,
    spec: AdmittedSpec,
    recorder: StartRecorder,
) -> Result<Arc<LocalBox>, StartError> {
    refuse_images(&spec)?;
    let (resources, channel) = open(&backend, &spec).await?;
    let host = &backend.host;
    let connected = ConnectedBox {
        host,
        backend: NAME,
        spec: &spec,
        recorder: &recorder,
        resources: Arc::new(resources),
        channel,
    };
    let label = |resources: &BoxResources, landlock| {
        let mut lacks = host_lacks(host);
        lacks.extend(own_kernel_lacks(&spec, landlock));
        // Verifies with the kernel what nsjail was asked to set up.
        lacks.extend(
            observed_lacks(resources.init).map_err(step("read its namespaces and restrictions"))?,
        );
        Ok(label(NAME, &spec, lacks))
    };
    connected.start(|_, _| Ok(RootPlan::Jail), label).await
}

fn refuse_images(spec: &AdmittedSpec) -> Result<(), StartError> {
    match spec.image() {
        Image::Default => Ok(()),
        image => Err(StartError::Unsupported {
            what: format!(
                "nsjail boxes use the host's system directories and cannot start from image \
                 `{}`; the native, docker and podman backends can",
                image.name()
            ),
        }),
    }
}

/// Why no jail can start on this host; `None` if one can.
pub(crate) fn unavailable(backend: &NsjailBackend) -> Option<StartError> {
    (!backend.host.mapping.is_root()).then(|| StartError::Unavailable {
        why: "nsjail boxes need a daemon that runs as root".to_owned(),
        hint: "run the daemon as root, or use the native backend, which needs nothing installed"
            .to_owned(),
    })
}

/// Starts a jail, with an init that waits for its plan, in its own cgroups.
async fn open(
    backend: &NsjailBackend,
    spec: &AdmittedSpec,
) -> Result<(BoxResources, Channel), StartError> {
    if let Some(error) = unavailable(backend) {
        return Err(error);
    }
    let host = &backend.host;
    let ids = host
        .mapping
        .allocate(spec.user())
        .map_err(step("allocate its uids"))?;
    let name = next_name();
    let nsjail = program::find(&backend.settings.program)?;
    let (jail, init) = jail::open(host, &nsjail, &name, &ids).await?;
    let mut resources = BoxResources::new(name, init.pid, init.pidfd, ids)
        .map_err(step("watch the pidfd of init"))?
        .with_backend_state(Box::new(jail));
    if let Err(error) = prepare(backend, &mut resources, init.pid) {
        resources.clear_failed().await;
        return Err(error);
    }
    Ok((resources, init.channel))
}

/// Opens the namespaces and creates the cgroups. Blocks for a few short system calls.
fn prepare(
    backend: &NsjailBackend,
    resources: &mut BoxResources,
    pid: i32,
) -> Result<(), StartError> {
    let namespaces = BoxNamespaces::open(resources.init).map_err(step("open its namespaces"))?;
    resources.set_namespaces(namespaces);
    let cgroups = &backend.host.cgroups;
    if cgroups.any() {
        let group = Group::create(cgroups, &resources.name, resources.ids.init_uid)
            .map_err(step("create its cgroups"))?;
        let group = resources.group.insert(group);
        group.add(pid).map_err(step("move it into its cgroups"))?;
    }
    Ok(())
}
