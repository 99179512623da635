//! The flags that describe a server, for `add` and `test`.

use std::collections::BTreeMap;
use std::time::Duration;

use boxwood_api::{
    McpBoxSettings, McpServerName, McpServerSpec, McpToolFilter, MountMode, Network,
};

use crate::failure::{Failure, Outcome};
use crate::flags::{EnvVar, Mebibytes, cpus, duration};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct SpecFlags {
    /// Set a variable for the server; repeatable. `-e KEY` takes the value from here
    ///
    /// Values are kept apart from everything else and never shown again.
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    env: Vec<EnvVar>,

    /// Directory of the host to start in
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Further package or constraint for its install, as in `mcp<2`; repeatable
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,

    /// Show clients only tools like this, as in `read_*`; repeatable
    #[arg(long = "allow-tool", value_name = "PATTERN")]
    allow: Vec<String>,

    /// Keep tools like this from clients; repeatable
    #[arg(long = "deny-tool", value_name = "PATTERN")]
    deny: Vec<String>,

    /// Stop it after so long without a call, as in `10m`; the next call starts it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle_stop: Option<Duration>,

    /// Give up on a start after so long [default: 2m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    startup_timeout: Option<Duration>,

    /// Keep its box off the network while it runs; its packages are installed before
    #[arg(long, help_heading = "Box")]
    no_network: bool,

    /// Directory the server works on; found in its command and arguments when left out
    #[arg(long, value_name = "DIR", help_heading = "Box")]
    host_path: Option<String>,

    /// Let it change that directory; otherwise it is mounted read-only
    #[arg(long, help_heading = "Box")]
    writable: bool,

    /// Give it no directory of the host, whatever paths its command names
    #[arg(long, help_heading = "Box", conflicts_with_all = ["host_path", "writable"])]
    no_host_path: bool,

    /// Set a variable for the server and its install; repeatable
    ///
    /// These are shown, so they are no place for secrets. `--env` wins over them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = shown_variable, help_heading = "Box")]
    box_env: Vec<EnvVar>,

    /// Profile to judge by (see `boxwood profiles`)
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    profile: Option<String>,

    /// What runs the box: a backend's name
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    backend: Option<String>,

    /// Root file system, by the name the operator gave it; the host's own when left out
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    image: Option<String>,

    /// Most memory the box may use, as in `512m`
    #[arg(short = 'm', long, value_name = "SIZE", help_heading = "Box")]
    memory: Option<Mebibytes>,

    /// Most processor time the box may use, in cores
    #[arg(long, value_name = "N", value_parser = cpus, help_heading = "Box")]
    cpus: Option<f64>,

    /// Most processes in the box
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Box")]
    pids: Option<u64>,

    /// Make everything outside of the workspace, home and /tmp read-only
    #[arg(long, help_heading = "Box")]
    read_only: bool,

    /// The server's command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl SpecFlags {
    pub(super) fn spec(&self, name: McpServerName, enabled: bool) -> Outcome<McpServerSpec> {
        let (command, args) = self
            .command
            .split_first()
            .ok_or_else(|| Failure::usage("a server needs a command after `--`"))?;
        let defaults = McpBoxSettings::default();
        Ok(McpServerSpec {
            name,
            command: command.clone(),
            args: args.to_vec(),
            env: by_name(&self.env),
            cwd: self.cwd.as_deref().map(absolute).transpose()?,
            enabled,
            settings: McpBoxSettings {
                profile: self.profile.clone(),
                backend: self.backend.clone(),
                image: self.image.clone(),
                network: if self.no_network {
                    Network::Off
                } else {
                    Network::On
                },
                host_path: self.host_path.as_deref().map(absolute).transpose()?,
                host_path_mode: match (self.no_host_path, self.writable) {
                    (true, _) => MountMode::None,
                    (false, true) => MountMode::Rw,
                    (false, false) => MountMode::Ro,
                },
                env: by_name(&self.box_env),
                startup_timeout_sec: self
                    .startup_timeout
                    .map_or(defaults.startup_timeout_sec, whole_seconds),
                cpus: self.cpus,
                memory_mb: self.memory.map(|size| size.0),
                pids_limit: self.pids,
                read_only_rootfs: self.read_only.then_some(true),
            },
            tools: McpToolFilter {
                allow: self.allow.clone(),
                deny: self.deny.clone(),
            },
            idle_stop_sec: self.idle_stop.map(whole_seconds),
            with: self.with.clone(),
        })
    }
}

/// The value is never taken from the environment, which may hold secrets.
fn shown_variable(text: &str) -> Result<EnvVar, String> {
    if !text.contains('=') {
        return Err(format!("`{text}` has no value; write `{text}=VALUE`"));
    }
    text.parse()
}

fn by_name(variables: &[EnvVar]) -> BTreeMap<String, String> {
    let pair = |variable: &EnvVar| (variable.key.clone(), variable.value.clone());
    variables.iter().map(pair).collect()
}

/// The API counts whole seconds; a fraction is rounded up so that the timeout is never shorter than requested.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The daemon has another working directory.
fn absolute(path: &str) -> Outcome<String> {
    let whole = std::path::absolute(path)
        .map_err(|error| Failure::local(format!("`{path}` is no path"), error))?;
    whole
        .into_os_string()
        .into_string()
        .map_err(|_| Failure::usage(format!("the absolute path of `{path}` is not text")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: SpecFlags,
    }

    fn spec(words: &[&str]) -> McpServerSpec {
        let line = Line::try_parse_from([&["x"], words].concat());
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        let name = McpServerName::new("time").expect("a name");
        line.flags
            .spec(name, true)
            .unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn what_is_left_out_has_the_defaults_of_the_api() {
        let plain: McpServerSpec = serde_json::from_value(serde_json::json!({
            "name": "time", "command": "uvx", "args": ["mcp-server-time", "-v"],
        }))
        .expect("a spec");
        assert_eq!(spec(&["--", "uvx", "mcp-server-time", "-v"]), plain);
    }

    #[test]
    fn every_flag_reaches_its_field() {
        let asked = spec(&[
            "-e",
            "TOKEN=a=b",
            "--with",
            "mcp<2",
            "--allow-tool",
            "read_*",
            "--deny-tool",
            "x",
            "--idle-stop",
            "90s",
            "--startup-timeout",
            "1.5s",
            "--no-network",
            "--host-path",
            "/srv",
            "--writable",
            "--memory",
            "512m",
            "--cpus",
            "0.5",
            "--pids",
            "64",
            "--read-only",
            "--box-env",
            "LANG=C=1",
            "--",
            "npx",
            "-y",
            "thing",
        ]);
        assert_eq!(asked.env["TOKEN"], "a=b");
        assert_eq!(
            (
                asked.with.len(),
                asked.tools.allow.len(),
                asked.tools.deny.len()
            ),
            (1, 1, 1)
        );
        assert_eq!(asked.idle_stop_sec, Some(90));
        let settings = asked.settings;
        assert_eq!(settings.startup_timeout_sec, 2);
        assert_eq!(
            (settings.network, settings.host_path_mode),
            (Network::Off, MountMode::Rw)
        );
        assert_eq!(settings.host_path.as_deref(), Some("/srv"));
        assert_eq!(
            (settings.memory_mb, settings.pids_limit),
            (Some(512), Some(64))
        );
        assert_eq!(settings.read_only_rootfs, Some(true));
        assert_eq!(settings.env["LANG"], "C=1");
        assert!(!settings.env.contains_key("TOKEN") && !asked.env.contains_key("LANG"));
    }

    #[test]
    fn a_server_can_do_without_a_directory() {
        let settings = spec(&["--no-host-path", "--", "ls", "/srv"]).settings;
        assert_eq!(settings.host_path_mode, MountMode::None);
        assert_eq!(settings.host_path, None);
        for other in ["--writable", "--host-path=/srv"] {
            assert!(Line::try_parse_from(["x", "--no-host-path", other, "--", "ls"]).is_err());
        }
    }

    #[test]
    fn what_is_shown_is_not_taken_from_the_environment() {
        assert!(std::env::var_os("PATH").is_some());
        assert!(Line::try_parse_from(["x", "--box-env", "PATH", "--", "ls"]).is_err());
        assert!(Line::try_parse_from(["x", "--box-env", "=v", "--", "ls"]).is_err());
    }

    #[test]
    fn a_server_needs_a_command() {
        // Unless it is a stored one, which only `test` takes.
        let line = Line::try_parse_from(["x"]).expect("parsed");
        let name = McpServerName::new("x").expect("a name");
        line.flags.spec(name, true).expect_err("no command");
    }
}
