//! One of a spec's extra mounts.

use boxwood_api::{MAX_MOUNTS, MountMode, MountSpec};

use serde_json::Value;

use super::coerce;
use super::errors::{Errors, Invalid, Location};
use super::model::{Model, fields};
use super::paths;
use crate::WireFormat;
use crate::params::is_lower_hex;

pub(super) const MODES: [(&str, MountMode); 3] = [
    ("none", MountMode::None),
    ("ro", MountMode::Ro),
    ("rw", MountMode::Rw),
];

/// Directory in the box for mounts that are named after their content digest.
pub(crate) const ARTIFACT_ROOT: &str = "/opt/langbot-artifacts";

/// Content digest and manifest of a mount (SDK 0.7). A mount below `/opt/langbot-artifacts` has both, is
/// read-only and its path ends in the digest; for other mounts both are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountProof {
    /// `sha256:` and 64 lower-case hexadecimal digits.
    pub(crate) content_digest: Option<String>,
    /// Absolute on the host.
    pub(crate) manifest_path: Option<String>,
}

/// The extra mounts, each with its content digest and manifest.
pub(super) fn mounts(
    model: &mut Model<'_, '_>,
    version: WireFormat,
) -> Vec<(MountSpec, MountProof)> {
    let items = model.list("extra_mounts");
    let at = model.at("extra_mounts");
    // Checked before the elements are read, so that a million of them cost nothing.
    if items.len() > MAX_MOUNTS {
        let rule = format!(
            "extra_mounts must have at most {MAX_MOUNTS} entries, not {}",
            items.len()
        );
        model.errors.push(&at, &Invalid::value(&rule));
        return Vec::new();
    }
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| {
            mount(item, &at.then(&index.to_string()), version, model.errors)
        })
        .collect()
}

fn mount(
    input: &Value,
    at: &Location,
    version: WireFormat,
    errors: &mut Errors,
) -> Option<(MountSpec, MountProof)> {
    let fields = fields(input, "BoxMountSpec", at, errors)?;
    let found_before = errors.count();
    let mut model = Model::new(fields, at.clone(), errors);
    let spec = MountSpec {
        host_path: model.required("host_path", |input| {
            paths::on_host("host_path", coerce::text(input)?)
        }),
        mount_path: model.required("mount_path", |input| {
            mount_path(coerce::text(input)?, version)
        }),
        mode: model.optional("mode", MountMode::Rw, coerce::enumeration(&MODES)),
    };
    if version == WireFormat::V0_4 {
        return Some((spec, MountProof::default()));
    }
    let proof = MountProof {
        content_digest: model.optional(
            "content_digest",
            None,
            coerce::nullable(|input| digest(coerce::text(input)?)),
        ),
        manifest_path: model.optional(
            "manifest_path",
            None,
            coerce::nullable(|input| paths::on_host("manifest_path", coerce::text(input)?)),
        ),
    };
    // Like pydantic, check the mount as a whole only if each of its fields is valid.
    if errors.count() == found_before && is_reserved(&spec.mount_path) && !proof.addresses(&spec) {
        let invalid = Invalid::value(
            "Artifact paths require a read-only digest-addressed mount and manifest",
        );
        errors.push(at, &invalid);
    }
    Some((spec, proof))
}

fn mount_path(path: String, version: WireFormat) -> Result<String, Invalid> {
    let path = paths::in_box("mount_path", path)?;
    if version == WireFormat::V0_7 && !paths::is_normal(&path) {
        return Err(Invalid::value("mount_path must be normalized"));
    }
    Ok(path)
}

fn digest(text: String) -> Result<String, Invalid> {
    let text = paths::stripped(text);
    let Some(hex) = text.strip_prefix("sha256:") else {
        return Err(Invalid::value("content_digest must use sha256:<hex>"));
    };
    if hex.len() != 64 || !is_lower_hex(hex) {
        return Err(Invalid::value(
            "content_digest must use sha256:<64 lowercase hex>",
        ));
    }
    Ok(text)
}

fn is_reserved(mount_path: &str) -> bool {
    mount_path
        .strip_prefix(ARTIFACT_ROOT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl MountProof {
    /// The digits of the content digest.
    pub(crate) fn hex(&self) -> Option<&str> {
        self.content_digest.as_deref()?.strip_prefix("sha256:")
    }

    /// Returns true if the mount is read-only, has a manifest, and its path is `/opt/langbot-artifacts/` and the
    /// content digest.
    pub(crate) fn addresses(&self, mount: &MountSpec) -> bool {
        let hex = self.hex();
        let digest = mount
            .mount_path
            .strip_prefix(ARTIFACT_ROOT)
            .and_then(|rest| rest.strip_prefix('/'));
        mount.mode == MountMode::Ro
            && self.manifest_path.is_some()
            && hex.is_some()
            && hex == digest
    }
}
