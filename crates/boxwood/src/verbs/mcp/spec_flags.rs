//! The flags that describe a server, for `add` and `test`.

use std::time::Duration;

use boxwood_api::{
    McpBoxSettings, McpServerName, McpServerSpec, McpToolFilter, MountMode, Network,
};

use crate::failure::{Failure, Outcome};
use crate::flags::{Assignment, Mebibytes, assignments, cpus, duration, whole_seconds};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct SpecFlags {
    /// Set an environment variable of the server; repeatable. `-e KEY` passes the value of your own environment
    ///
    /// Values are stored separately and never shown.
    #[arg(short = 'e', long = "env", value_name = "KEY[=VALUE]")]
    env: Vec<Assignment>,

    /// Working directory of the server, as a path on the host
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Additional package or constraint for the installation, such as `mcp<2`; repeatable
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,

    /// Allow only tools that match this pattern, such as `read_*`; repeatable
    #[arg(long = "allow-tool", value_name = "PATTERN")]
    allow: Vec<String>,

    /// Hide tools that match this pattern; repeatable
    #[arg(long = "deny-tool", value_name = "PATTERN")]
    deny: Vec<String>,

    /// Stop the server after this time without a call, such as `10m`; the next call starts it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle_stop: Option<Duration>,

    /// Timeout of a start [default: 2m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    startup_timeout: Option<Duration>,

    /// Run the server without network access; its packages are installed before
    #[arg(long, help_heading = "Box")]
    no_network: bool,

    /// Host directory that the server uses [default: taken from paths in the command]
    #[arg(long, value_name = "DIR", help_heading = "Box")]
    host_path: Option<String>,

    /// Mount that directory writable instead of read-only
    #[arg(long, help_heading = "Box")]
    writable: bool,

    /// Mount no host directory, even if the command contains paths
    #[arg(long, help_heading = "Box", conflicts_with_all = ["host_path", "writable"])]
    no_host_path: bool,

    /// Set an environment variable of the server and its installation; repeatable
    ///
    /// These values are visible, so do not use them for secrets. `--env` takes precedence.
    #[arg(long, value_name = "KEY=VALUE", value_parser = shown_variable, help_heading = "Box")]
    box_env: Vec<Assignment>,

    /// Profile with defaults and limits (see `boxwood profiles`)
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    profile: Option<String>,

    /// Backend of the box
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    backend: Option<String>,

    /// Image to use as the root file system (see `boxwood image`) [default: the host's]
    #[arg(long, value_name = "NAME", help_heading = "Box")]
    image: Option<String>,

    /// Memory limit of the box, such as `512m`
    #[arg(short = 'm', long, value_name = "SIZE", help_heading = "Box")]
    memory: Option<Mebibytes>,

    /// CPU limit of the box, in cores
    #[arg(long, value_name = "N", value_parser = cpus, help_heading = "Box")]
    cpus: Option<f64>,

    /// Maximum number of processes in the box
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Box")]
    pids: Option<u64>,

    /// Make everything except the workspace, home and /tmp read-only
    #[arg(long, help_heading = "Box")]
    read_only: bool,

    /// Command of the server, and its arguments
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
            env: assignments(&self.env),
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
                env: assignments(&self.box_env),
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
fn shown_variable(text: &str) -> Result<Assignment, String> {
    if !text.contains('=') {
        return Err(format!("`{text}` has no value; write `{text}=VALUE`"));
    }
    text.parse()
}

/// The daemon has another working directory.
fn absolute(path: &str) -> Outcome<String> {
    let absolute_path = std::path::absolute(path)
        .map_err(|error| Failure::local(format!("cannot make `{path}` absolute"), error))?;
    absolute_path
        .into_os_string()
        .into_string()
        .map_err(|_| Failure::usage(format!("the absolute path of `{path}` is not UTF-8")))
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

    fn spec(args: &[&str]) -> McpServerSpec {
        let line = Line::try_parse_from([&["x"], args].concat());
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        let name = McpServerName::new("time").expect("a name");
        line.flags
            .spec(name, true)
            .unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn omitted_flags_have_the_defaults_of_the_api() {
        let plain: McpServerSpec = serde_json::from_value(serde_json::json!({
            "name": "time", "command": "uvx", "args": ["mcp-server-time", "-v"],
        }))
        .expect("a spec");
        assert_eq!(spec(&["--", "uvx", "mcp-server-time", "-v"]), plain);
    }

    #[test]
    fn every_flag_reaches_its_field() {
        let spec = spec(&[
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
        assert_eq!(spec.env["TOKEN"], "a=b");
        assert_eq!(
            (
                spec.with.len(),
                spec.tools.allow.len(),
                spec.tools.deny.len()
            ),
            (1, 1, 1)
        );
        assert_eq!(spec.idle_stop_sec, Some(90));
        let settings = spec.settings;
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
        assert!(!settings.env.contains_key("TOKEN") && !spec.env.contains_key("LANG"));
    }

    #[test]
    fn a_server_can_run_without_a_host_directory() {
        let settings = spec(&["--no-host-path", "--", "ls", "/srv"]).settings;
        assert_eq!(settings.host_path_mode, MountMode::None);
        assert_eq!(settings.host_path, None);
        for other in ["--writable", "--host-path=/srv"] {
            assert!(Line::try_parse_from(["x", "--no-host-path", other, "--", "ls"]).is_err());
        }
    }

    #[test]
    fn visible_variables_are_not_taken_from_the_environment() {
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
