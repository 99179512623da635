//! The specification of a box and, for `box_exec`, of a command.

use std::borrow::Cow;

use boxwood_api::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, Network, SessionId, SpecRequest};
use serde_json::{Map, Value};

use super::coerce::{self, non_empty, saturated};
use super::errors::{Errors, Invalid, Location};
use super::model::Model;
use super::mount::{self, MODES, MountProof};
use super::paths::{in_box, on_host, strip, stripped};
use crate::WireFormat;

const NETWORKS: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];

/// A validated specification.
#[derive(Clone, Debug)]
pub(crate) struct ValidSpec {
    /// Every field of LangBot's model is `Some`, except `host_path`. Passes [`SpecRequest::validate`].
    pub(crate) request: SpecRequest,
    /// One for each extra mount; empty values for SDK 0.4.
    pub(crate) mount_proofs: Vec<MountProof>,
}

/// The error is the text after `BoxValidationError: `.
pub(crate) fn box_spec(
    data: &Map<String, Value>,
    version: WireFormat,
) -> Result<ValidSpec, String> {
    let mut errors = Errors::of("BoxSpec");
    let data = with_default_workdir(data);
    let model = &mut Model::new(&data, Location::default(), &mut errors);
    let (session_id, mut spec) = fields(model, version);
    if errors.is_empty() && leaves_its_workspace(&spec.request) {
        let rule = "workdir must stay under mount_path when host_path is provided";
        errors.push(&Location::default(), &Invalid::value(rule));
    }
    errors.check()?;
    let session_id =
        SessionId::new(&session_id).map_err(|error| errors.text_with("session_id", &error))?;
    spec.request.session_id = Some(session_id);
    spec.request.validate().map_err(|error| {
        errors.push_field(&error);
        errors.text()
    })?;
    Ok(spec)
}

/// A workdir that is missing, null or empty defaults to the mount path, if that is given.
fn with_default_workdir(data: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    let workdir = data.get("workdir").filter(|value| !value.is_null());
    let is_given = workdir.is_some_and(|value| value.as_str() != Some(""));
    let mount_path = data
        .get("mount_path")
        .and_then(Value::as_str)
        .filter(|path| !strip(path).is_empty());
    match mount_path {
        Some(path) if !is_given => {
            let mut data = data.clone();
            data.insert("workdir".to_owned(), path.into());
            Cow::Owned(data)
        }
        _ => Cow::Borrowed(data),
    }
}

/// The session id as sent, and the other fields of the model. They are read in the order of LangBot's model, because
/// pydantic reports errors in that order.
fn fields(model: &mut Model<'_, '_>, version: WireFormat) -> (String, ValidSpec) {
    let default_path = || DEFAULT_MOUNT_PATH.to_owned();
    let session_id;
    let mount_proofs;
    let request = SpecRequest {
        cmd: model.optional("cmd", String::new(), |input| {
            coerce::text(input).map(stripped)
        }),
        workdir: Some(model.optional("workdir", default_path(), |input| {
            coerce::text(input).and_then(|path| in_box("workdir", path))
        })),
        timeout_sec: Some(model.optional("timeout_sec", 30, |input| {
            at_least(input, 1, "timeout_sec must be greater than 0")
        })),
        network: Some(model.optional("network", Network::Off, coerce::enumeration(&NETWORKS))),
        env: {
            session_id = model.required("session_id", |input| {
                non_empty(input, "session_id must not be empty")
            });
            model.string_map("env")
        },
        image: Some(model.optional("image", DEFAULT_IMAGES[0].to_owned(), coerce::text)),
        host_path: model.optional(
            "host_path",
            None,
            coerce::nullable(|input| on_host("host_path", coerce::text(input)?)),
        ),
        host_path_mode: Some(model.optional(
            "host_path_mode",
            MountMode::Rw,
            coerce::enumeration(&MODES),
        )),
        mount_path: Some(model.optional("mount_path", default_path(), |input| {
            coerce::text(input).and_then(|path| in_box("mount_path", path))
        })),
        extra_mounts: {
            let (mounts, proofs) = mount::mounts(model, version).into_iter().unzip();
            mount_proofs = proofs;
            mounts
        },
        persistent: Some(model.optional("persistent", false, coerce::boolean)),
        cpus: Some(
            model.optional("cpus", 1.0, |input| match coerce::float(input)? {
                cpus if cpus <= 0.0 => Err(Invalid::value("cpus must be greater than 0")),
                cpus => Ok(cpus),
            }),
        ),
        memory_mb: Some(model.optional("memory_mb", 512, |input| {
            at_least(input, 32, "memory_mb must be at least 32")
        })),
        pids_limit: Some(model.optional("pids_limit", 128, |input| {
            at_least(input, 1, "pids_limit must be at least 1")
        })),
        read_only_rootfs: Some(model.optional("read_only_rootfs", true, coerce::boolean)),
        workspace_quota_mb: Some(model.optional("workspace_quota_mb", 0, |input| {
            let rule = "workspace_quota_mb must be greater than or equal to 0";
            at_least(input, 0, rule)
        })),
        ..SpecRequest::default()
    };
    if version == WireFormat::V0_7 {
        model.forbid_unknown();
    }
    (
        session_id,
        ValidSpec {
            request,
            mount_proofs,
        },
    )
}

fn at_least(input: &Value, min: i128, rule: &str) -> Result<u64, Invalid> {
    match coerce::integer(input)? {
        number if number < min => Err(Invalid::value(rule)),
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
