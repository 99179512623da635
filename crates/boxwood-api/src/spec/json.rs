//! Parses a [`SpecRequest`] from JSON with the type coercions and null handling that LangBot Box
//! clients rely on. Unknown and duplicate fields are errors.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::parse::fields::{Fields, Null, one_of};
use crate::{FieldError, Mechanism, MountMode, MountSpec, Network, SessionId, SpecRequest};

const NETWORKS: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];

const MODES: [(&str, MountMode); 3] = [
    ("none", MountMode::None),
    ("ro", MountMode::Ro),
    ("rw", MountMode::Rw),
];

impl SpecRequest {
    /// All field names. Interfaces that ignore unknown fields keep only these.
    pub const FIELDS: [&'static str; 22] = [
        "session_id",
        "cmd",
        "workdir",
        "timeout_sec",
        "network",
        "env",
        "image",
        "host_path",
        "host_path_mode",
        "mount_path",
        "extra_mounts",
        "skills",
        "persistent",
        "cpus",
        "memory_mb",
        "pids_limit",
        "read_only_rootfs",
        "workspace_quota_mb",
        "profile",
        "stdin",
        "require",
        "backend",
    ];

    fn from_fields(mut fields: Fields) -> Result<Self, String> {
        let has_null_workdir = fields.is_null("workdir");
        let request = Self {
            // The session is named by the path, so the body may omit it.
            session_id: fields.parsed("session_id", Null::IsAbsent, SessionId::new)?,
            ..Self::from_named_fields(&mut fields).map_err(|fault| fault.to_string())?
        };
        if has_null_workdir && request.mount_path.is_none() {
            return Err("workdir must be a string, not null".to_owned());
        }
        Ok(request)
    }

    fn from_named_fields(fields: &mut Fields) -> Result<Self, FieldError> {
        Ok(Self {
            session_id: None,
            cmd: fields.text("cmd", Null::IsWrong)?.unwrap_or_default(),
            workdir: fields.text("workdir", Null::IsAbsent)?,
            timeout_sec: fields.unsigned("timeout_sec", "must be greater than 0")?,
            network: fields.word("network", &NETWORKS)?,
            env: fields.text_map("env")?,
            image: fields.text("image", Null::IsWrong)?,
            host_path: fields.text("host_path", Null::IsAbsent)?,
            host_path_mode: fields.word("host_path_mode", &MODES)?,
            mount_path: fields.text("mount_path", Null::IsWrong)?,
            extra_mounts: mounts(fields)?,
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
            require: mechanisms(fields)?,
            backend: fields.text("backend", Null::IsAbsent)?,
        })
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
    let words: Vec<(&str, Mechanism)> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| (mechanism.as_str(), mechanism))
        .collect();
    fields
        .list("require")?
        .iter()
        .enumerate()
        .map(|(index, value): (usize, &Value)| one_of(&format!("require[{index}]"), value, &words))
        .collect()
}

impl<'de> Deserialize<'de> for SpecRequest {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let fields = Fields::read(input, &Self::FIELDS)?;
        Self::from_fields(fields).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MountSpec {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(input, &["host_path", "mount_path", "mode"])?;
        let mut read = || -> Result<Self, FieldError> {
            let missing = |field| FieldError::new(field, "is required");
            Ok(Self {
                host_path: fields
                    .text("host_path", Null::IsWrong)?
                    .ok_or_else(|| missing("host_path"))?,
                mount_path: fields
                    .text("mount_path", Null::IsWrong)?
                    .ok_or_else(|| missing("mount_path"))?,
                mode: fields.word("mode", &MODES)?.unwrap_or_default(),
            })
        };
        read().map_err(de::Error::custom)
    }
}
