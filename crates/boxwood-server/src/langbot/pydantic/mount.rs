//! One of a spec's extra mounts.

use boxwood_api::{MAX_MOUNTS, MountMode, MountSpec};

use super::coerce;
use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::model::{Extra, Model, entries};
use super::path;
use super::repr::Shown;
use crate::langbot::Era;

pub(super) const MODES: [(&str, MountMode); 3] = [
    ("none", MountMode::None),
    ("ro", MountMode::Ro),
    ("rw", MountMode::Rw),
];

/// Where mounts appear that are named after their content.
const ARTIFACT_ROOT: &str = "/opt/langbot-artifacts";

/// What today's clients may say of a mount's content. A mount below `/opt/langbot-artifacts` always
/// says both, is read-only and ends in its digest; elsewhere either may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::langbot) struct MountProof {
    /// `sha256:` and 64 lower-case hexadecimal digits.
    pub(in crate::langbot) content_digest: Option<String>,
    /// Absolute on the host.
    pub(in crate::langbot) manifest_path: Option<String>,
}

/// Every mount of the list, with what it says of its content.
pub(super) fn mounts(model: &mut Model<'_, '_>, era: Era) -> Vec<(MountSpec, MountProof)> {
    let items = model.list("extra_mounts");
    let at = model.at("extra_mounts");
    // Before the elements are looked at, so that a million of them cost nothing.
    if items.len() > MAX_MOUNTS {
        let rule = format!(
            "extra_mounts must have at most {MAX_MOUNTS} entries, not {}",
            items.len()
        );
        if let Some(list) = model.sent("extra_mounts") {
            model
                .errors
                .push(&at, &Wrong::value(&rule), Shown::Value(list));
        }
        return Vec::new();
    }
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| mount(item, &at.then(&index.to_string()), era, model.errors))
        .collect()
}

fn mount(
    input: &Input<'_>,
    at: &Location,
    era: Era,
    errors: &mut Errors,
) -> Option<(MountSpec, MountProof)> {
    let entries = entries(input, "BoxMountSpec", at, errors)?;
    let found_before = errors.count();
    let mut model = Model::new(&entries, at.clone(), errors);
    let host_path = model.required("host_path", |input| {
        coerce::text(input).and_then(|path| path::on_host("host_path", path))
    });
    let mount_path = model.required("mount_path", |input| {
        coerce::text(input).and_then(|path| mount_path(path, era))
    });
    let mode = model.optional("mode", MountMode::Rw, coerce::word(&MODES));
    let spec = MountSpec {
        host_path,
        mount_path,
        mode,
    };
    if era == Era::June {
        return Some((spec, MountProof::default()));
    }
    let proof = MountProof {
        content_digest: model.optional(
            "content_digest",
            None,
            coerce::nullable(|input| coerce::text(input).and_then(digest)),
        ),
        manifest_path: model.optional(
            "manifest_path",
            None,
            coerce::nullable(|input| {
                coerce::text(input).and_then(|path| path::on_host("manifest_path", path))
            }),
        ),
    };
    model.finish(Extra::Ignore);
    // A rule about the whole mount is for mounts whose every field is fine.
    if errors.count() == found_before && is_reserved(&spec.mount_path) && !proof.names(&spec) {
        let wrong =
            Wrong::value("Artifact paths require a read-only digest-addressed mount and manifest");
        errors.push(at, &wrong, Shown::Value(input));
    }
    Some((spec, proof))
}

fn mount_path(path: String, era: Era) -> Result<String, Wrong> {
    let path = path::in_box("mount_path", path)?;
    if era == Era::Today && !path::is_normal(&path) {
        return Err(Wrong::value("mount_path must be normalized"));
    }
    Ok(path)
}

fn digest(text: String) -> Result<String, Wrong> {
    let text = path::stripped(text);
    let Some(hex) = text.strip_prefix("sha256:") else {
        return Err(Wrong::value("content_digest must use sha256:<hex>"));
    };
    let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if hex.len() != 64 || !hex.bytes().all(lower_hex) {
        return Err(Wrong::value(
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
    /// Whether the mount's place names its content.
    fn names(&self, mount: &MountSpec) -> bool {
        let hex = self
            .content_digest
            .as_deref()
            .and_then(|digest| digest.strip_prefix("sha256:"));
        let place = mount
            .mount_path
            .strip_prefix(ARTIFACT_ROOT)
            .and_then(|rest| rest.strip_prefix('/'));
        mount.mode == MountMode::Ro && self.manifest_path.is_some() && hex.is_some() && hex == place
    }
}
