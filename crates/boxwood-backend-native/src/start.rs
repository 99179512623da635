//! The start of a box, step by step. Whatever fails, what was made before it goes again.

use std::io;
use std::sync::Arc;

use boxwood_api::Network;
use boxwood_backend::{StartError, Witness};
use boxwood_local::{Begun, ImageLease, LocalBox, Remains, attach, begin_to_last, check_required};
use boxwood_policy::AdmittedSpec;

use crate::blank::Blank;
use crate::plan::{self, Drawn};
use crate::{NAME, Shared, label};

pub(crate) async fn start(
    shared: Arc<Shared>,
    spec: AdmittedSpec,
    witness: Witness,
) -> Result<Arc<LocalBox>, StartError> {
    let stored = plan::stored_image(&shared, &spec)?;
    let (remains, channel) = blank(&shared, &spec).await?;
    let carried = carry_out(&shared, &spec, &remains, channel, stored, &witness);
    match carried.await {
        Ok(Begun {
            link,
            landlock,
            fence,
        }) => {
            let label = label::label(&shared, &spec, landlock);
            if let Err(error) = check_required(&spec, &label) {
                clear(&remains).await;
                return Err(error);
            }
            Ok(Arc::new(LocalBox::new(
                Arc::new(remains),
                label,
                link,
                fence,
                &shared.host,
            )))
        }
        Err(error) => {
            clear(&remains).await;
            Err(error)
        }
    }
}

async fn clear(remains: &Remains) {
    if let Err(error) = remains.clear().await {
        tracing::warn!(%error, name = remains.name, "a failed start left something behind");
    }
}

fn step(step: &str) -> impl FnOnce(io::Error) -> StartError {
    let step = step.to_owned();
    move |source| StartError::Step { step, source }
}

/// A blank box from the pool, or a new one. One that died while waiting is left behind.
async fn blank(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
) -> Result<(Remains, boxwood_init::Channel), StartError> {
    while let Some(blank) = shared.pool.take(shared, spec.user()) {
        if blank.remains.is_alive() {
            return Ok((blank.remains, blank.channel));
        }
        clear(&blank.remains).await;
    }
    let blank = Blank::make(shared, spec.user()).await.map_err(blocked)?;
    Ok((blank.remains, blank.channel))
}

/// The kernel's "no" to a namespace, with what usually helps.
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
            why: format!("the host's limit of namespaces is reached: {source}"),
            hint: "raise `user.max_user_namespaces` and its kin in /proc/sys/user".to_owned(),
        },
        _ => step("make its namespaces")(source),
    }
}

async fn carry_out(
    shared: &Arc<Shared>,
    spec: &AdmittedSpec,
    remains: &Remains,
    channel: boxwood_init::Channel,
    stored: Option<ImageLease>,
    witness: &Witness,
) -> Result<Begun, StartError> {
    if let Some(group) = &remains.group {
        group
            .limit(&spec.limits())
            .map_err(step("set its limits"))?;
    }
    let network = match spec.network() {
        Network::Off => None,
        Network::On => Some(attach(&shared.host, remains).await?),
    };
    // A few short system calls per mount: not worth another thread.
    let Drawn { plan, fds } = plan::draw(shared, spec, remains, network, stored.as_ref())?;
    if let Some(lease) = stored {
        remains.hold_image(lease);
    }
    begin_to_last(&shared.host, NAME, remains, witness, channel, plan, fds).await
}
