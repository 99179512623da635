//! From a server's command to what runs in a box.
//!
//! Comes in: a server as its client's configuration describes it, and the host's file system. Goes out: a
//! plan: what to install, what to start, which directory of the host to copy or to mount. Never here: a
//! box, a process, or a decision about what may be mounted. Installs go to a cache at a fixed place in the
//! box, so a later start needs neither launcher nor network.

mod asked;
mod contents;
mod entry;
mod error;
mod failure;
mod habits;
mod homes;
mod host_venv;
mod infer;
mod key;
mod node_recipe;
mod npm;
mod options;
mod package;
mod paths;
mod project;
mod python_recipe;
mod quote;
mod reading;
mod recipe;
mod scene;
mod stage;
mod tree;
mod uv;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_MOUNT_PATH, McpServerSpec, MountMode};

use super::BoxKind;

pub(crate) use error::LaunchError;
pub(crate) use failure::dep_install_error;
pub(crate) use stage::{Staging, stage};

use asked::{Asked, Launcher};
use entry::Entry;
use infer::Inferred;
use key::Key;
use paths::{Place, Rewrite};
use scene::{Drawn, Scene};
use stage::Contents;

/// Where a box sees its install.
pub(crate) const CACHE: &str = "/opt/mcp";
/// Searched last when a server brings a `PATH` of its own, which is mostly that of another machine.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the plan of every server on this host depends on.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts {
    tools: String,
}

impl HostFacts {
    pub(crate) fn of_this_host() -> Self {
        Self {
            tools: key::tools_of_this_host(),
        }
    }
}

/// What it takes to start a server.
#[derive(Clone, Debug)]
pub(crate) struct LaunchPlan {
    pub(crate) install: Option<InstallPlan>,
    /// As far as it is known before the install; [`LaunchPlan::program`] knows it afterwards.
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) host_path: Option<HostPath>,
}

/// An install that a box makes once.
#[derive(Clone, Debug)]
pub(crate) struct InstallPlan {
    /// Stands for all that decides over the install and is known without its box and its sources.
    pub(crate) basis: String,
    /// For `/bin/sh`. What it writes is for people to see; it succeeds, or says why not on stderr.
    pub(crate) script: String,
    /// For the script alone: nothing in it is meant for the server.
    pub(crate) env: BTreeMap<String, String>,
    /// For people.
    pub(crate) what: String,
    /// Which parts of the workspace the script looks into, by their names there; empty for the whole.
    pub(crate) parts: Vec<String>,
    /// What is installed from the workspace itself, by its place there: every byte of it decides.
    pub(crate) contents: Vec<PathBuf>,
}

impl InstallPlan {
    /// Names the finished install. The same one only where the install would come out the same. Reads
    /// files, so it may block; `workspace` is where the box's lies on the host, and was judged.
    pub(crate) fn key(
        &self,
        made_in: &BoxKind,
        workspace: Option<&Path>,
    ) -> Result<String, LaunchError> {
        let mut key = Key::new("install");
        key.add("basis", &self.basis);
        key.add("image", &made_in.image);
        key.add("backend", &made_in.backend);
        contents::add(&mut key, workspace, &self.contents)?;
        Ok(key.finish())
    }
}

/// A directory of the host that becomes the workspace. Nothing of it may be used before it was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPath {
    /// Copied together. Mostly it is one.
    Staged(Vec<Staging>),
    Direct {
        path: PathBuf,
    },
}

/// What a process of the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    /// A shell command that fails where the box no longer has what the install was made with.
    pub(crate) check: Option<String>,
}

/// What somebody who adds the server should know of it.
pub(crate) fn notice(spec: &McpServerSpec) -> Option<String> {
    let asked = Asked::read(&spec.command, &spec.args).ok()?;
    let habit = habits::of(&asked.launcher)?;
    let is_settled = spec.env.contains_key(habit.variable)
        || spec.settings.env.contains_key(habit.variable)
        || spec.settings.host_path_mode == MountMode::Rw;
    (!is_settled).then(|| habit.notice())
}

/// Reads a server's command. Looks at the host's file system, so it may block.
pub(crate) fn plan(spec: &McpServerSpec, facts: &HostFacts) -> Result<LaunchPlan, LaunchError> {
    let asked = Asked::read(&spec.command, &spec.args)?;
    let rewrite = match host_path(spec, &asked)? {
        Inferred::Nothing => None,
        Inferred::One(host) => Some(Rewrite::new(&host, DEFAULT_MOUNT_PATH)),
        Inferred::Several(hosts) => Some(Rewrite::several(&hosts, DEFAULT_MOUNT_PATH)),
    };
    let scene = Scene {
        spec,
        rewrite: rewrite.as_ref(),
    };
    let drawn = match &asked.launcher {
        Launcher::PythonTool(tool) => python_recipe::tool(tool, &scene)?,
        Launcher::Project(run) => python_recipe::run(run, &asked, &scene)?,
        Launcher::NodeTool(tool) => node_recipe::tool(tool, &asked, &scene)?,
        Launcher::Node { args } => node_recipe::run("node", args, &asked, &scene)?,
        Launcher::Npm { args } => node_recipe::run("npm", args, &asked, &scene)?,
        Launcher::Plain { command, args } => as_it_is(command, args, &scene)?,
    };
    let cwd = match (&drawn.cwd, &spec.cwd) {
        (Some(cwd), _) => cwd.clone(),
        (None, Some(cwd)) => scene.word(cwd),
        (None, None) => DEFAULT_MOUNT_PATH.to_owned(),
    };
    let mut env = BTreeMap::new();
    if let Some(habit) = habits::of(&asked.launcher) {
        env.insert(habit.variable.to_owned(), habit.place.to_owned());
    }
    // What is said of one process wins over what is said of the box.
    env.extend(spec.settings.env.clone());
    env.extend(spec.env.clone());
    env.extend(asked.env.clone());
    let host_path = rewrite
        .as_ref()
        .map(|rewrite| workspace(rewrite, &asked, &drawn, &scene))
        .transpose()?;
    Ok(LaunchPlan {
        install: drawn.recipe.map(|recipe| recipe.finish(spec, &facts.tools)),
        command: drawn.command,
        args: drawn.args,
        cwd,
        env,
        host_path,
    })
}

/// How the directory gets into the box.
fn workspace(
    rewrite: &Rewrite,
    asked: &Asked,
    drawn: &Drawn,
    scene: &Scene<'_>,
) -> Result<HostPath, LaunchError> {
    if !scene.is_direct() {
        let programs = programs(asked, scene);
        let is_installed = |place: &Place| {
            let recipe = drawn.recipe.as_ref();
            !is_package(asked) && recipe.is_some_and(|recipe| recipe.shows(place))
        };
        let is_project = |place: &Place| {
            is_installed(place) || programs.iter().any(|program| place.holds(program))
        };
        let staging = |place: &Place| Staging {
            from: place.real.clone(),
            into: place.name.clone(),
            contents: if is_project(place) {
                Contents::Project
            } else {
                Contents::Data
            },
            links: links_in(&drawn.links, &place.name),
        };
        return Ok(HostPath::Staged(
            rewrite.places().iter().map(staging).collect(),
        ));
    }
    match (rewrite.host(), rewrite.places()) {
        (Some(path), _) => Ok(HostPath::Direct {
            path: path.to_owned(),
        }),
        (None, places) => Err(LaunchError::SeveralDirect {
            count: places.len(),
        }),
    }
}

/// Of one part of the copy.
fn links_in(links: &[(PathBuf, String)], part: &str) -> Vec<(PathBuf, String)> {
    links
        .iter()
        .filter_map(|(place, says)| {
            let inside = place.strip_prefix(part).ok()?;
            Some((inside.to_owned(), says.clone()))
        })
        .collect()
}

fn as_it_is(command: &str, args: &[String], scene: &Scene<'_>) -> Result<Drawn, LaunchError> {
    if !scene.spec.with.is_empty() {
        return Err(LaunchError::WithNothing {
            command: command.to_owned(),
        });
    }
    let command = scene
        .rewrite
        .map_or_else(|| command.to_owned(), |rewrite| rewrite.command(command));
    Ok(Drawn::new(command, scene.words(args), None))
}

/// The directory that was asked for, or the one that the words of the command have in common.
fn host_path(spec: &McpServerSpec, asked: &Asked) -> Result<Inferred, LaunchError> {
    if spec.settings.host_path_mode == MountMode::None {
        return Ok(Inferred::Nothing);
    }
    if let Some(path) = &spec.settings.host_path {
        let path = PathBuf::from(path);
        return if path.is_absolute() && path.is_dir() {
            Ok(Inferred::One(path))
        } else {
            Err(LaunchError::NoHostPath { path })
        };
    }
    let words = asked.words.iter().chain(&spec.cwd).map(String::as_str);
    infer::infer(words)
}

/// Where on the host that lies which is started. What else the command names is what it works on.
fn programs(asked: &Asked, scene: &Scene<'_>) -> Vec<PathBuf> {
    let on_host = |path: &str| scene.on_host(path);
    let mut programs: Vec<_> = asked
        .scripts()
        .filter_map(Path::to_str)
        .map(on_host)
        .collect();
    if is_package(asked) {
        // Its code comes from elsewhere, unless it is told which to run; then it runs that in its directory.
        if programs.is_empty() {
            return programs;
        }
    } else {
        programs.extend(asked.venv.clone());
    }
    programs.extend(scene.spec.cwd.as_deref().map(PathBuf::from));
    programs.extend(scene.spec.settings.host_path.as_deref().map(PathBuf::from));
    match &asked.launcher {
        Launcher::Project(run) => {
            programs.extend(
                run.directory
                    .iter()
                    .chain(&run.project)
                    .map(|path| on_host(path)),
            );
        }
        // Whatever it is, a file among its words may be what it runs.
        Launcher::Plain { .. } => {
            let files = asked.words.iter().map(|word| on_host(word));
            programs.extend(files.filter(|path| path.is_file()));
        }
        Launcher::PythonTool(_)
        | Launcher::NodeTool(_)
        | Launcher::Node { .. }
        | Launcher::Npm { .. } => {}
    }
    programs
}

/// Installed by its name.
fn is_package(asked: &Asked) -> bool {
    matches!(
        asked.launcher,
        Launcher::PythonTool(_) | Launcher::NodeTool(_)
    )
}

impl LaunchPlan {
    /// What to start. `install` is where the finished install lies on the host.
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
            command: entry
                .command
                .clone()
                .unwrap_or_else(|| self.command.clone()),
            args: self.args.clone(),
            cwd: self.cwd.clone(),
            env,
            check: entry.check(),
        })
    }
}

/// What the install brought, then what the server asked for, then what the box has. `None` when the box's
/// own will do.
fn search_path(entry: &Entry, asked: Option<&String>) -> Option<String> {
    if entry.path.is_empty() && asked.is_none() {
        return None;
    }
    let boxs_own = if entry.box_path.is_empty() {
        USUAL_PATH
    } else {
        &entry.box_path
    };
    let parts = entry.path.iter().chain(asked).map(String::as_str);
    let mut directories: Vec<&str> = Vec::new();
    for directory in parts.chain([boxs_own]).flat_map(|part| part.split(':')) {
        if !directory.is_empty() && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    Some(directories.join(":"))
}

#[cfg(test)]
mod tests;
