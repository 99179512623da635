//! Starts a box. If a step fails, everything created before it is removed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_backend::{StartError, StartRecorder, start_step};
use boxwood_local::{BoxResources, ConnectedBox, LocalBox, host_lacks, label, own_kernel_lacks};
use boxwood_policy::AdmittedSpec;

use crate::prewarmed::Prewarmed;
use crate::{NAME, NativeBackend, root};

pub(crate) async fn start(
    backend: NativeBackend,
    spec: AdmittedSpec,
    recorder: StartRecorder,
) -> Result<Arc<LocalBox>, StartError> {
    let leased = root::stored_image(&backend, &spec)?;
    let (resources, channel) = prewarmed(&backend, &spec).await?;
    let connected = ConnectedBox {
        host: &backend.host,
        backend: NAME,
        spec: &spec,
        recorder: &recorder,
        resources: Arc::new(resources),
        channel,
    };
    let root = |resources: &BoxResources, fds: &mut Vec<OwnedFd>| {
        root::root(&backend, &spec, resources, leased, fds)
    };
    let label = |_: &BoxResources, landlock| {
        let mut lacks = host_lacks(&backend.host);
        lacks.extend(own_kernel_lacks(&spec, landlock));
        Ok(label(NAME, &spec, lacks))
    };
    connected.start(root, label).await
}

/// Takes a running box from the pool, or creates one.
async fn prewarmed(
    backend: &NativeBackend,
    spec: &AdmittedSpec,
) -> Result<(BoxResources, boxwood_init::Channel), StartError> {
    while let Some(prewarmed) = backend.pool.take(backend, spec.user()) {
        if prewarmed.resources.is_alive() {
            return Ok((prewarmed.resources, prewarmed.channel));
        }
        prewarmed.resources.clear_failed().await;
    }
    let prewarmed = Prewarmed::make(backend, spec.user())
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
        _ => start_step("create its namespaces")(source),
    }
}
