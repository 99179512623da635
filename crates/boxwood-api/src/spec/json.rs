//! Parses a [`SpecRequest`] from JSON with the type coercions and null handling that LangBot Box
//! clients rely on. Unknown and duplicate fields are errors.

use serde::{Deserialize, Deserializer, de};

use crate::parse::fields::{Fields, Null, one_of};
use crate::{FieldError, Mechanism, MountSpec, SessionId, SpecRequest};

impl SpecRequest {
    fn from_fields(mut fields: Fields) -> Result<Self, FieldError> {
        let has_null_workdir = fields.is_null("workdir");
        let request = Self {
            // The session is named by the path, so the body may omit it.
            session_id: fields.parsed("session_id", Null::IsAbsent, SessionId::new)?,
            cmd: fields.text("cmd", Null::IsWrong)?.unwrap_or_default(),
            workdir: fields.text("workdir", Null::IsAbsent)?,
            timeout_sec: fields.unsigned("timeout_sec", "must be greater than 0")?,
            network: fields.keyword("network")?,
            env: fields.text_map("env")?,
            image: fields.text("image", Null::IsWrong)?,
            host_path: fields.text("host_path", Null::IsAbsent)?,
            host_path_mode: fields.keyword("host_path_mode")?,
            mount_path: fields.text("mount_path", Null::IsWrong)?,
            extra_mounts: mounts(&mut fields)?,
            skills: fields.texts("skills")?,
            persistent: fields.boolean("persistent")?,
            cpus: fields.float("cpus")?,
            memory_mb: fields.unsigned("memory_mb", "must be at least 32")?,
            pids_limit: fields.unsigned("pids_limit", "must be at least 1")?,
            read_only_rootfs: fields.boolean("read_only_rootfs")?,
            workspace_quota_mb: fields
                .unsigned("workspace_quota_mb", "must be greater than or equal to 0")?,
            profile: fields.text("profile", Null::IsAbsent)?,
            stdin: fields.text("stdin", Null::IsAbsent)?,
            require: mechanisms(&mut fields)?,
            backend: fields.text("backend", Null::IsAbsent)?,
        };
        fields.finish()?;
        if has_null_workdir && request.mount_path.is_none() {
            return Err(FieldError::new("workdir", "must be a string, not null"));
        }
        Ok(request)
    }
}

fn mounts(fields: &mut Fields) -> Result<Vec<MountSpec>, FieldError> {
    fields
        .list("extra_mounts")?
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            serde_json::from_value(value)
                .map_err(|fault| FieldError::new(format!("extra_mounts[{index}]:"), fault))
        })
        .collect()
}

fn mechanisms(fields: &mut Fields) -> Result<Vec<Mechanism>, FieldError> {
    let values = fields.list("require")?;
    let values = values.iter().enumerate();
    values
        .map(|(index, value)| one_of(&format!("require[{index}]"), value))
        .collect()
}

impl<'de> Deserialize<'de> for SpecRequest {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let fields = Fields::read(input)?;
        Self::from_fields(fields).map_err(de::Error::custom)
    }
}

impl MountSpec {
    fn from_fields(mut fields: Fields) -> Result<Self, FieldError> {
        let mut required = |field| {
            let text = fields.text(field, Null::IsWrong)?;
            text.ok_or_else(|| FieldError::new(field, "is required"))
        };
        let mount = Self {
            host_path: required("host_path")?,
            mount_path: required("mount_path")?,
            mode: fields.keyword("mode")?.unwrap_or_default(),
        };
        fields.finish()?;
        Ok(mount)
    }
}

impl<'de> Deserialize<'de> for MountSpec {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let fields = Fields::read(input)?;
        Self::from_fields(fields).map_err(de::Error::custom)
    }
}
