//! Plans the launch of a server: what to install, what to start, and which host directories to mount.
//!
//! Runs nothing and does not decide what may be mounted. Installs are mounted at a fixed path in the box, so that
//! later starts need neither the launcher nor the network.

mod error;
mod parse;
mod project;
mod read_text;
mod recipe;
mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_MOUNT_PATH, McpServerSpec, MountMode};
use serde::{Deserialize, Serialize};

use super::BoxKind;

pub(crate) use error::LaunchError;
pub(crate) use recipe::key::{hex, tools_of_this_host};
pub(crate) use workspace::paths::HostDirectory;

use parse::command::{Launcher, ParsedCommand};
use recipe::entry::Entry;
use recipe::key::Key;
use recipe::{LaunchContext, Resolved, node, python};
use workspace::digest;
use workspace::infer;
use workspace::paths::PathMap;

/// Mount point of the install in the box.
pub(crate) const CACHE: &str = "/opt/mcp";
/// Mount point of host directories in the box of an installer, which copies them to where the server sees them.
/// Builds write beside their sources, and the host directory is mounted read-only.
pub(crate) const SOURCES: &str = "/opt/mcp-sources";
/// Mount point of the installed modules of a Node project. Node searches for modules up to the root directory.
pub(crate) const NODE_MODULES: &str = "/node_modules";
/// Appended to the `PATH` of a definition, which is often copied from another machine and lacks these directories.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Debug)]
pub(crate) struct LaunchPlan {
    pub(crate) install: Option<InstallPlan>,
    /// The command as far as it is known before the install. [`LaunchPlan::program`] returns the final one.
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    /// Host directories to mount. They must pass policy before anything in them is used.
    pub(crate) directories: Vec<HostDirectory>,
}

#[derive(Clone, Debug)]
pub(crate) struct InstallPlan {
    /// Digest of all inputs except the box kind and the workspace contents.
    pub(crate) basis: String,
    /// The install script, for `/bin/sh`. Its output is shown to users; errors go to stderr.
    pub(crate) script: String,
    /// Variables of the script. The server does not get them.
    pub(crate) env: BTreeMap<String, String>,
    /// What is installed, for display.
    pub(crate) what: String,
    /// Host directories that the script needs.
    pub(crate) parts: Vec<HostDirectory>,
    /// Host paths whose contents are part of the key.
    pub(crate) contents: Vec<PathBuf>,
    /// True if the install contains the modules of a Node project, which are mounted at [`NODE_MODULES`].
    pub(crate) has_node_modules: bool,
}

impl InstallPlan {
    /// The cache key. Equal keys mean equal installs. Reads host directories, which must have passed policy, and may
    /// block.
    pub(crate) fn key(&self, kind: &BoxKind) -> Result<String, LaunchError> {
        let mut key = Key::new("install");
        key.add("basis", &self.basis);
        key.add("image", &kind.image);
        key.add("backend", &kind.backend);
        digest::add(&mut key, &self.contents)?;
        Ok(key.finish())
    }
}

/// The process to start, in the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
}

/// A notice for the user who adds the server, if it would lose its data.
pub(crate) fn notice(spec: &McpServerSpec) -> Option<String> {
    let parsed = ParsedCommand::read(&spec.command, &spec.args).ok()?;
    let (variable, path) = node::MEMORY_FILE;
    let is_configured = spec.env.contains_key(variable)
        || spec.settings.env.contains_key(variable)
        || spec.settings.host_path_mode == MountMode::Rw;
    (node::is_server_memory(&parsed.launcher) && !is_configured).then(|| {
        format!(
            "it stores its data in `{path}` ({variable}), which is removed with its box; set `host_path` \
             with `host_path_mode` `rw` to keep it"
        )
    })
}

/// Parses the command. Reads the host's file system and may block. `tools` describes the tools of this host.
pub(crate) fn plan(spec: &McpServerSpec, tools: &str) -> Result<LaunchPlan, LaunchError> {
    let parsed = ParsedCommand::read(&spec.command, &spec.args)?;
    let context = LaunchContext {
        spec,
        path_map: PathMap::new(&host_paths(spec, &parsed)?),
    };
    let resolved = match &parsed.launcher {
        Launcher::PythonTool(tool) => python::tool(tool, &context)?,
        Launcher::Project(run) => python::run(run, &parsed, &context)?,
        Launcher::NodeTool(tool) => node::tool(tool, &context)?,
        Launcher::NodeRun { program, args } => node::run(program, args, &parsed, &context)?,
        Launcher::Plain { command, args } => as_written(command, args, &context)?,
    };
    let cwd = match (&resolved.cwd, &spec.cwd) {
        (Some(cwd), _) => cwd.clone(),
        (None, Some(cwd)) => context.path_map.word(cwd),
        (None, None) => DEFAULT_MOUNT_PATH.to_owned(),
    };
    let mut env = BTreeMap::new();
    if node::is_server_memory(&parsed.launcher) {
        let (variable, path) = node::MEMORY_FILE;
        env.insert(variable.to_owned(), path.to_owned());
    }
    // Settings of the process override those of the box.
    env.extend(spec.settings.env.clone());
    env.extend(spec.env.clone());
    env.extend(parsed.env.clone());
    if matches!(parsed.launcher, Launcher::Project(_)) {
        // The directory of the project may be mounted writable. Python must not write its cache there.
        env.entry("PYTHONDONTWRITEBYTECODE".to_owned())
            .or_insert_with(|| "1".to_owned());
    }
    Ok(LaunchPlan {
        install: resolved.recipe.map(|recipe| recipe.finish(spec, tools)),
        command: resolved.command,
        args: resolved.args,
        cwd,
        env,
        directories: context.path_map.directories().cloned().collect(),
    })
}

fn as_written(
    command: &str,
    args: &[String],
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    if !context.spec.with.is_empty() {
        return Err(LaunchError::WithNothing {
            command: command.to_owned(),
        });
    }
    let command = context.path_map.command(command);
    Ok(Resolved::new(command, context.words(args), None))
}

/// The configured directory, or those of the paths in the command.
fn host_paths(spec: &McpServerSpec, parsed: &ParsedCommand) -> Result<Vec<PathBuf>, LaunchError> {
    if spec.settings.host_path_mode == MountMode::None {
        return Ok(Vec::new());
    }
    if let Some(path) = &spec.settings.host_path {
        let path = PathBuf::from(path);
        return if path.is_absolute() && path.is_dir() {
            Ok(vec![path])
        } else {
            Err(LaunchError::NoHostPath { path })
        };
    }
    let words = parsed.words.iter().chain(&spec.cwd).map(String::as_str);
    infer::infer(words)
}

impl LaunchPlan {
    /// The final program. `install` is the host path of the finished install.
    pub(crate) fn program(&self, install: Option<&Path>) -> Result<Program, LaunchError> {
        let entry = match (&self.install, install) {
            (None, _) => Entry::default(),
            (Some(_), Some(directory)) => Entry::read(directory)?,
            (Some(plan), None) => {
                return Err(LaunchError::Entry {
                    why: format!("{} is not installed", plan.what),
                });
            }
        };
        let mut env = self.env.clone();
        if let Some(path) = search_path(&entry, self.env.get("PATH")) {
            env.insert("PATH".to_owned(), path);
        }
        Ok(Program {
            command: entry.command.unwrap_or_else(|| self.command.clone()),
            args: self.args.clone(),
            cwd: self.cwd.clone(),
            env,
        })
    }
}

/// The `PATH` of the install, then of the server, then of the box. `None` if the box's `PATH` is sufficient.
fn search_path(entry: &Entry, server_path: Option<&String>) -> Option<String> {
    if entry.path.is_empty() && server_path.is_none() {
        return None;
    }
    let box_path = if entry.box_path.is_empty() {
        USUAL_PATH
    } else {
        &entry.box_path
    };
    let parts = entry.path.iter().chain(server_path).map(String::as_str);
    let mut directories: Vec<&str> = Vec::new();
    for directory in parts.chain([box_path]).flat_map(|part| part.split(':')) {
        if !directory.is_empty() && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    Some(directories.join(":"))
}

#[cfg(test)]
mod tests;
