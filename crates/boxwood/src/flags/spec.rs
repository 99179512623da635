//! The flags that describe a box and a command, and the request they make.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use boxwood_api::{Mechanism, Network, SpecRequest};
use clap::Args;

use super::{Mebibytes, Mount, Workspace, duration};
use crate::output::wire_word;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Box")]
pub(crate) struct BoxFlags {
    /// Give the box network access
    ///
    /// Without this flag the box has only a loopback interface. With it the box can open outgoing
    /// connections, but not to this machine, other boxes or metadata addresses.
    #[arg(long)]
    pub(crate) network: bool,

    /// Profile with defaults and limits (see `boxwood profiles`)
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// Mount a host directory or file; repeatable
    ///
    /// Directories that contain secrets of the system or of Boxwood are always refused.
    #[arg(short = 'v', long = "volume", value_name = "HOST:/PATH[:ro]")]
    pub(crate) volumes: Vec<Mount>,

    /// Host directory to use as /workspace [default: a private, empty directory]
    #[arg(long, value_name = "DIR[:ro]")]
    pub(crate) workspace: Option<Workspace>,

    /// Mount a skill of the store under /workspace/.skills, read-only; repeatable
    ///
    /// Can also be added to the running box of an existing session.
    #[arg(long = "skill", value_name = "NAME")]
    pub(crate) skills: Vec<String>,

    /// Image to use as the root file system (see `boxwood image`) [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,

    /// Memory limit of the box, such as `512m`
    #[arg(short = 'm', long, value_name = "SIZE")]
    pub(crate) memory: Option<Mebibytes>,

    /// CPU limit of the box, in cores
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<f64>,

    /// Maximum number of processes in the box
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,

    /// Size of the private workspace and home, such as `1g`
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Mebibytes>,

    /// Make everything except the workspace, home and /tmp read-only
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Backend of the box: a name, or `auto` or `local` for the first that works
    ///
    /// There is no fallback from a named backend. `boxwood doctor` lists the backends.
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,

    /// Refuse to start without this isolation mechanism, such as `seccomp`; repeatable
    #[arg(long, value_name = "MECHANISM", value_parser = mechanism)]
    pub(crate) require: Vec<Mechanism>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Command")]
pub(crate) struct CommandFlags {
    /// Set an environment variable; repeatable. `-e KEY` passes the value of your own environment
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    pub(crate) env: Vec<Assignment>,

    /// Working directory
    #[arg(short = 'w', long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,

    /// Stop the command after this time, such as `30s` or `2m`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `KEY=VALUE`, with the value of the environment for `KEY`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The value may be a secret.
impl std::fmt::Debug for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Assignment({}=..)", self.key)
    }
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .map_or((text, None), |(key, value)| (key, Some(value.to_owned())));
        if key.is_empty() {
            return Err("a variable needs a name".to_owned());
        }
        let value = value.or_else(|| std::env::var(key).ok()).ok_or_else(|| {
            format!("`{key}` is not set in your environment; write `{key}=VALUE`")
        })?;
        Ok(Self {
            key: key.to_owned(),
            value,
        })
    }
}

pub(crate) fn cpus(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cpus) if cpus.is_finite() && cpus > 0.0 => Ok(cpus),
        _ => Err(format!(
            "`{text}` is not a number of cores; write `1` or `0.5`"
        )),
    }
}

fn mechanism(text: &str) -> Result<Mechanism, String> {
    serde_json::from_value(serde_json::Value::String(text.replace('-', "_"))).map_err(|_| {
        let known: Vec<_> = Mechanism::ALL.iter().map(wire_word).collect();
        format!("unknown mechanism; use one of {}", known.join(", "))
    })
}

impl BoxFlags {
    pub(crate) fn fill(&self, request: &mut SpecRequest) {
        if self.network {
            request.network = Some(Network::On);
        }
        request.profile.clone_from(&self.profile);
        request.extra_mounts = self.volumes.iter().map(|mount| mount.0.clone()).collect();
        if let Some(workspace) = &self.workspace {
            request.host_path = Some(workspace.host_path.clone());
            request.host_path_mode = Some(workspace.mode);
        }
        request.skills.clone_from(&self.skills);
        request.image.clone_from(&self.image);
        request.memory_mb = self.memory.map(|size| size.0);
        request.cpus = self.cpus;
        request.pids_limit = self.pids;
        request.workspace_quota_mb = self.disk.map(|size| size.0);
        if self.read_only {
            request.read_only_rootfs = Some(true);
        }
        request.backend.clone_from(&self.backend);
        request.require.clone_from(&self.require);
    }
}

impl CommandFlags {
    pub(crate) fn fill(&self, request: &mut SpecRequest) {
        request.env = assignments(&self.env);
        request.workdir.clone_from(&self.workdir);
        request.timeout_sec = self.timeout.map(whole_seconds);
    }
}

pub(crate) fn assignments(variables: &[Assignment]) -> BTreeMap<String, String> {
    let pair = |variable: &Assignment| (variable.key.clone(), variable.value.clone());
    variables.iter().map(pair).collect()
}

/// The API counts whole seconds; a fraction is rounded up so that the timeout is never shorter than requested.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The words of a command, quoted for `/bin/sh -c`.
pub(crate) fn command_line(argv: &[String]) -> String {
    let argv: Vec<_> = argv.iter().map(|word| quoted(word)).collect();
    argv.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    // A word with `=` before the command would be an assignment.
    if !word.is_empty() && word.chars().all(plain) && !word.contains('=') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let argv = ["echo", "a b", "it's", "", "$HOME", "A=1", "*"].map(str::to_owned);
        assert_eq!(
            command_line(&argv),
            r"echo 'a b' 'it'\''s' '' '$HOME' 'A=1' '*'"
        );
    }

    #[test]
    fn a_variable_needs_a_name() {
        let variable: Assignment = "A=b=c".parse().unwrap();
        assert_eq!(
            (variable.key.as_str(), variable.value.as_str()),
            ("A", "b=c")
        );
        for wrong in ["", "=x"] {
            assert!(wrong.parse::<Assignment>().unwrap_err().contains("name"));
        }
        assert!("BOXWOOD_TEST_SURELY_UNSET".parse::<Assignment>().is_err());
        assert!(
            !format!("{variable:?}").contains("b=c"),
            "a value was shown"
        );
    }

    #[test]
    fn mechanisms_are_known_by_their_wire_names() {
        assert_eq!(mechanism("seccomp"), Ok(Mechanism::Seccomp));
        assert_eq!(mechanism("user-namespace"), Ok(Mechanism::UserNamespace));
        assert!(mechanism("magic").unwrap_err().contains("kernel_boundary"));
    }
}
