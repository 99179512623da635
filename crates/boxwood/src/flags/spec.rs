//! The flags that describe a box and a command, and the request they make.

use std::str::FromStr;
use std::time::Duration;

use boxwood_api::{Mechanism, Network, SpecRequest};
use clap::Args;

use super::{Mebibytes, Mount, Workspace, duration};

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Box")]
pub(crate) struct BoxFlags {
    /// Let the box reach the network
    ///
    /// Without it the box has a loopback interface and nothing else. With it the box gets a network
    /// of its own: outwards only, never to this machine, other boxes or metadata addresses.
    #[arg(long)]
    pub(crate) network: bool,

    /// Profile to judge by (see `boxwood profiles`)
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// Mount a host directory or file; repeatable
    ///
    /// Directories that hold the system's or Boxwood's own secrets are always refused.
    #[arg(short = 'v', long = "volume", value_name = "HOST:/PATH[:ro]")]
    pub(crate) volumes: Vec<Mount>,

    /// Host directory to use as /workspace; private and empty when left out
    #[arg(long, value_name = "DIR[:ro]")]
    pub(crate) workspace: Option<Workspace>,

    /// Skill of the store to have under /workspace/.skills, read-only; repeatable
    ///
    /// Also in a session that exists: the skill appears in its box while it runs.
    #[arg(long = "skill", value_name = "NAME")]
    pub(crate) skills: Vec<String>,

    /// Root file system, by the name the operator gave it; the host's own when left out
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,

    /// Most memory the box may use, as in `512m`
    #[arg(short = 'm', long, value_name = "SIZE")]
    pub(crate) memory: Option<Mebibytes>,

    /// Most processor time the box may use, in cores
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<f64>,

    /// Most processes in the box
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,

    /// Size of the private workspace and home, as in `1g`
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Mebibytes>,

    /// Make everything outside of the workspace, home and /tmp read-only
    #[arg(long)]
    pub(crate) read_only: bool,

    /// What runs the box: a backend's name, or `auto` or `local` for the first that works
    ///
    /// A named one is used or the command fails. `boxwood doctor` shows which there are.
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,

    /// Refuse to start without this mechanism, as in `seccomp`; repeatable
    #[arg(long, value_name = "MECHANISM", value_parser = mechanism)]
    pub(crate) require: Vec<Mechanism>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Command")]
pub(crate) struct CommandFlags {
    /// Set an environment variable; repeatable. `-e KEY` takes the value from here
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    pub(crate) env: Vec<EnvVar>,

    /// Directory to start in
    #[arg(short = 'w', long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,

    /// Stop the command after this long, as in `30s` or `2m`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `KEY=VALUE`, with the value already looked up.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EnvVar {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The value may be a secret.
impl std::fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EnvVar({}=..)", self.key)
    }
}

impl FromStr for EnvVar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None => (
                text,
                std::env::var(text)
                    .map_err(|_| format!("`{text}` is not set here; write `{text}=VALUE`"))?,
            ),
        };
        if key.is_empty() {
            return Err("a variable needs a name".to_owned());
        }
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
        let known: Vec<_> = Mechanism::ALL.iter().map(|m| mechanism_name(*m)).collect();
        format!("unknown; there are {}", known.join(", "))
    })
}

/// A mechanism as the API spells it.
pub(crate) fn mechanism_name(mechanism: Mechanism) -> String {
    match serde_json::to_value(mechanism) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{mechanism:?}"),
    }
}

impl BoxFlags {
    /// Whether the person said anything about the box itself.
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
        request.env = self
            .env
            .iter()
            .map(|variable| (variable.key.clone(), variable.value.clone()))
            .collect();
        request.workdir.clone_from(&self.workdir);
        // The API counts whole seconds; a fraction is rounded up so that the timeout is never shorter than requested.
        request.timeout_sec = self
            .timeout
            .map(|timeout| timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0));
    }
}

/// The words of a command as one line for `/bin/sh -c`, each word arriving unchanged.
pub(crate) fn command_line(words: &[String]) -> String {
    words
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    // A word with `=` in front of the command would be an assignment.
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
        let words = ["echo", "a b", "it's", "", "$HOME", "A=1", "*"].map(str::to_owned);
        assert_eq!(
            command_line(&words),
            r"echo 'a b' 'it'\''s' '' '$HOME' 'A=1' '*'"
        );
    }

    #[test]
    fn variables_have_names() {
        let variable: EnvVar = "A=b=c".parse().unwrap();
        assert_eq!(
            (variable.key.as_str(), variable.value.as_str()),
            ("A", "b=c")
        );
        assert!("=x".parse::<EnvVar>().is_err());
        assert!("BOXWOOD_TEST_SURELY_UNSET".parse::<EnvVar>().is_err());
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
