//! Starts a box. If a step fails, everything created before it is removed.

use std::io;
use std::sync::Arc;

use boxwood_api::Network;
use boxwood_backend::{StartError, StartRecorder};
use boxwood_local::{
    BoxResources, ImageLease, LocalBox, StartedInit, attach, check_required, host_lacks, label,
    own_kernel_lacks, start_persistent_init,
};
use boxwood_policy::AdmittedSpec;

use crate::plan::{self, PlanWithFds};
use crate::prewarmed::Prewarmed;
use crate::{NAME, Shared};

pub(crate) async fn start(
    shared: Arc<Shared>,
    spec: AdmittedSpec,
    recorder: StartRecorder,
) -> Result<Arc<LocalBox>, StartError> {
    let leased = plan::stored_image(&shared, &spec)?;
    let (resources, channel) = prewarmed(&shared, &spec).await?;
    let carried = carry_out(&shared, &spec, &resources, channel, leased, &recorder);
    match carried.await {
        Ok(StartedInit {
            link,
            landlock,
            writable_paths,
        }) => {
            let mut lacks = host_lacks(&shared.host);
            lacks.extend(own_kernel_lacks(&spec, landlock));
            let label = label(NAME, &spec, lacks);
            if let Err(error) = check_required(&spec, &label) {
                clear(&resources).await;
                return Err(error);
            }
            Ok(Arc::new(LocalBox::new(
                Arc::new(resources),
                label,
                link,
                writable_paths,
                &shared.host,
            )))
        }
        Err(error) => {
            clear(&resources).await;
            Err(error)
        }
    }
}

async fn clear(resources: &BoxResources) {
    if let Err(error) = resources.clear().await {
        tracing::warn!(%error, name = resources.name, "failed to clean up after a failed start");
    }
}

fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

/// Takes a running box from the pool, or creates one.
async fn prewarmed(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
) -> Result<(BoxResources, boxwood_init::Channel), StartError> {
    while let Some(prewarmed) = shared.pool.take(shared, spec.user()) {
        if prewarmed.resources.is_alive() {
            return Ok((prewarmed.resources, prewarmed.channel));
        }
        clear(&prewarmed.resources).await;
    }
    let prewarmed = Prewarmed::make(shared, spec.user())
        .await
        .map_err(blocked)?;
    Ok((prewarmed.resources, prewarmed.channel))
}

/// Explains why the kernel refused to create namespaces.
fn blocked(source: io::Error) -> StartError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => StartError::Unavailable {
            why: format!("this host does not allow new user namespaces: {source}"),
            hint:
                "run `boxwood doctor`; usually `sysctl kernel.unprivileged_userns_clone=1`, or on \
                   Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
                    .to_owned(),
        },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StartError::Unavailable {
            why: format!("the host's limit of namespaces has been reached: {source}"),
            hint: "raise `user.max_user_namespaces` and the other limits in /proc/sys/user"
                .to_owned(),
        },
        _ => step("create its namespaces")(source),
    }
}

async fn carry_out(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    resources: &BoxResources,
    channel: boxwood_init::Channel,
    leased: Option<ImageLease>,
    recorder: &StartRecorder,
) -> Result<StartedInit, StartError> {
    if let Some(group) = &resources.group {
        group
            .limit(&spec.limits())
            .map_err(step("set its limits"))?;
    }
    let network = match spec.network() {
        Network::Off => None,
        Network::On => Some(attach(&shared.host, resources).await?),
    };
    // A few short system calls per mount: not worth a blocking thread.
    let PlanWithFds { plan, fds } = plan::build(shared, spec, resources, network, leased.as_ref())?;
    if let Some(lease) = leased {
        resources.keep_image(lease);
    }
    start_persistent_init(&shared.host, NAME, resources, recorder, channel, plan, fds).await
}
