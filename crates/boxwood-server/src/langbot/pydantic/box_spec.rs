//! The box, and perhaps the command for it, that a client asks for.

use boxwood_api::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, Network, SessionId, SpecRequest};

use serde_json::{Map, Value};

use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::model::{Extra, Model, entries};
use super::mount::{self, MODES, MountProof};
use super::own_rules::saturated;
use super::path::{in_box, on_host, strip, stripped};
use super::repr::Shown;
use super::{coerce, own_rules};
use crate::langbot::Era;

const NETWORKS: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];

/// A spec that was read.
#[derive(Clone, Debug)]
pub(in crate::langbot) struct GivenSpec {
    /// Every field that the clients' model has is `Some`, but for `host_path`. Passes
    /// [`SpecRequest::validate`].
    pub(in crate::langbot) request: SpecRequest,
    /// One for each of the request's extra mounts; June's clients say nothing here.
    pub(in crate::langbot) mount_proofs: Vec<MountProof>,
}

/// The error is the text behind `BoxValidationError: `.
pub(in crate::langbot) fn box_spec(
    data: &Map<String, Value>,
    era: Era,
) -> Result<GivenSpec, String> {
    read(&Input::from(data), era)
}

pub(super) fn read(data: &Input<'_>, era: Era) -> Result<GivenSpec, String> {
    let mut errors = Errors::of("BoxSpec");
    let Some(mut sent) = entries(data, "BoxSpec", &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    work_where_the_workspace_is(&mut sent);
    let given = fields(
        &mut Model::new(&sent, Location::default(), &mut errors),
        era,
    );
    if errors.is_empty() && leaves_its_workspace(&given.request) {
        let wrong = Wrong::value("workdir must stay under mount_path when host_path is provided");
        errors.push(&Location::default(), &wrong, Shown::Value(data));
    }
    if errors.is_empty() {
        match SessionId::new(&given.session_id) {
            Ok(session_id) => return runnable(given, session_id, data, errors),
            Err(fault) => own_rules::push_id(&mut errors, data, "session_id", &fault),
        }
    }
    Err(errors.text())
}

/// The fields of the model, with the session's id still in the client's spelling.
struct Fields {
    session_id: String,
    request: SpecRequest,
    mount_proofs: Vec<MountProof>,
}

/// A workdir that is missing, null or empty is the mount path, if there is one.
fn work_where_the_workspace_is<'i>(sent: &mut Vec<(&'i str, &'i Input<'i>)>) {
    let place = sent.iter().position(|(name, _)| *name == "workdir");
    let is_given = place
        .and_then(|place| sent.get(place))
        .is_some_and(|(_, workdir)| {
            !matches!(workdir, Input::Null)
                && !matches!(workdir, Input::Text(text) if text.is_empty())
        });
    let mount_path = sent
        .iter()
        .find(|(name, _)| *name == "mount_path")
        .map(|(_, mount_path)| *mount_path);
    match mount_path {
        Some(mount_path @ Input::Text(text)) if !is_given && !strip(text).is_empty() => {
            match place.and_then(|place| sent.get_mut(place)) {
                Some(workdir) => workdir.1 = mount_path,
                None => sent.push(("workdir", mount_path)),
            }
        }
        _ => {}
    }
}

fn fields(model: &mut Model<'_, '_>, era: Era) -> Fields {
    let default_path = || DEFAULT_MOUNT_PATH.to_owned();
    let cmd = model.optional("cmd", String::new(), |input| {
        coerce::text(input).map(stripped)
    });
    let workdir = model.optional("workdir", default_path(), |input| {
        coerce::text(input).and_then(|path| in_box("workdir", path))
    });
    let timeout_sec = model.optional("timeout_sec", 30, |input| {
        at_least(input, 1, "timeout_sec must be greater than 0")
    });
    let network = model.optional("network", Network::Off, coerce::word(&NETWORKS));
    let session_id = model.required("session_id", |input| match stripped(coerce::text(input)?) {
        id if id.is_empty() => Err(Wrong::value("session_id must not be empty")),
        id => Ok(id),
    });
    let env = model.texts_by_name("env").into_iter().collect();
    let image = model.optional("image", DEFAULT_IMAGES[0].to_owned(), coerce::text);
    let host_path = model.optional(
        "host_path",
        None,
        coerce::nullable(|input| coerce::text(input).and_then(|path| on_host("host_path", path))),
    );
    let host_path_mode = model.optional("host_path_mode", MountMode::Rw, coerce::word(&MODES));
    let mount_path = model.optional("mount_path", default_path(), |input| {
        coerce::text(input).and_then(|path| in_box("mount_path", path))
    });
    let (extra_mounts, mount_proofs) = mount::mounts(model, era).into_iter().unzip();
    let persistent = model.optional("persistent", false, coerce::boolean);
    let cpus = model.optional("cpus", 1.0, |input| match coerce::float(input)? {
        cpus if cpus <= 0.0 => Err(Wrong::value("cpus must be greater than 0")),
        cpus => Ok(cpus),
    });
    let memory_mb = model.optional("memory_mb", 512, |input| {
        at_least(input, 32, "memory_mb must be at least 32")
    });
    let pids_limit = model.optional("pids_limit", 128, |input| {
        at_least(input, 1, "pids_limit must be at least 1")
    });
    let read_only_rootfs = model.optional("read_only_rootfs", true, coerce::boolean);
    let workspace_quota_mb = model.optional("workspace_quota_mb", 0, |input| {
        at_least(
            input,
            0,
            "workspace_quota_mb must be greater than or equal to 0",
        )
    });
    model.finish(match era {
        Era::June => Extra::Ignore,
        Era::Today => Extra::Forbid,
    });
    Fields {
        session_id,
        request: SpecRequest {
            cmd,
            workdir: Some(workdir),
            timeout_sec: Some(timeout_sec),
            network: Some(network),
            env,
            image: Some(image),
            host_path,
            host_path_mode: Some(host_path_mode),
            mount_path: Some(mount_path),
            extra_mounts,
            persistent: Some(persistent),
            cpus: Some(cpus),
            memory_mb: Some(memory_mb),
            pids_limit: Some(pids_limit),
            read_only_rootfs: Some(read_only_rootfs),
            workspace_quota_mb: Some(workspace_quota_mb),
            ..SpecRequest::default()
        },
        mount_proofs,
    }
}

fn at_least(input: &Input<'_>, least: i128, rule: &str) -> Result<u64, Wrong> {
    match coerce::integer(input)? {
        number if number < least => Err(Wrong::value(rule)),
        number => Ok(saturated(number)),
    }
}

fn leaves_its_workspace(request: &SpecRequest) -> bool {
    let (Some(_), Some(workdir), Some(mount_path)) =
        (&request.host_path, &request.workdir, &request.mount_path)
    else {
        return false;
    };
    let inside = workdir
        .strip_prefix(mount_path.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    request.host_path_mode != Some(MountMode::None) && !inside
}

/// What the model accepts, if a box can have it.
fn runnable(
    given: Fields,
    session_id: SessionId,
    data: &Input<'_>,
    mut errors: Errors,
) -> Result<GivenSpec, String> {
    let request = SpecRequest {
        session_id: Some(session_id),
        ..given.request
    };
    match request.validate() {
        Ok(()) => Ok(GivenSpec {
            request,
            mount_proofs: given.mount_proofs,
        }),
        Err(fault) => {
            own_rules::push(&mut errors, data, &fault);
            Err(errors.text())
        }
    }
}
