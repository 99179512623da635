//! A directory of the host as a program in a box sees it.
//!
//! Comes in: a command line with paths of the host. Goes out: the same with paths of the box, and the
//! payloads that name the box. Never here: a process. The file system is only asked where paths lead.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use boxwood_api::{MountMode, Network, ProcessId};
use serde_json::{Map, Value, json};

use crate::paths::WORKSPACE;
use crate::realpath::realpath;

const VENVS: [&str; 4] = [".venv", "venv", "env", ".env"];
const BINS: [&str; 2] = ["bin", "Scripts"];

/// One session, and what of the host is mounted in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    pub session_id: String,
    pub host_path: Option<PathBuf>,
    pub host_path_mode: MountMode,
    pub workdir: String,
    pub env: BTreeMap<String, String>,
    /// Where `host_path` is in the box. Never part of a payload.
    pub mount_path: String,
    pub network: Option<Network>,
    pub read_only_rootfs: Option<bool>,
    pub image: Option<String>,
    pub cpus: Option<f64>,
    pub memory_mb: Option<u64>,
    pub pids_limit: Option<u64>,
    pub persistent: bool,
}

/// What one command wants other than its session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecWishes {
    pub workdir: Option<String>,
    pub timeout_sec: Option<u64>,
    /// Instead of the session's.
    pub env: Option<BTreeMap<String, String>>,
}

/// A program that shall run in a session, in the host's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessWishes {
    /// Left out of the payload when not given; the session's only program needs no name.
    pub process_id: Option<ProcessId>,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// The session's when left out.
    pub cwd: Option<String>,
}

impl Workspace {
    pub fn new(session_id: impl Into<String>) -> Self {
        Self {
            session_id: session_id.into(),
            host_path: None,
            host_path_mode: MountMode::Rw,
            workdir: WORKSPACE.to_owned(),
            env: BTreeMap::new(),
            mount_path: WORKSPACE.to_owned(),
            network: None,
            read_only_rootfs: None,
            image: None,
            cpus: None,
            memory_mb: None,
            pids_limit: None,
            persistent: false,
        }
    }

    /// What creates the session.
    pub fn session_payload(&self) -> Map<String, Value> {
        let mut payload = Map::new();
        let mut put = |name: &str, value: Value| payload.insert(name.to_owned(), value);
        put("session_id", json!(self.session_id));
        put("workdir", json!(self.workdir));
        put("env", json!(self.env));
        put("persistent", json!(self.persistent));
        if let Some(network) = self.network {
            put("network", json!(network));
        }
        if let Some(read_only) = self.read_only_rootfs {
            put("read_only_rootfs", json!(read_only));
        }
        if let Some(host_path) = &self.host_path {
            put("host_path", json!(host_path));
            put("host_path_mode", json!(self.host_path_mode));
        }
        if let Some(image) = &self.image {
            put("image", json!(image));
        }
        if let Some(cpus) = self.cpus {
            put("cpus", json!(cpus));
        }
        if let Some(memory_mb) = self.memory_mb {
            put("memory_mb", json!(memory_mb));
        }
        if let Some(pids_limit) = self.pids_limit {
            put("pids_limit", json!(pids_limit));
        }
        payload
    }

    /// What runs a command in it.
    pub fn exec_payload(&self, cmd: &str, wishes: &ExecWishes) -> Map<String, Value> {
        let mut payload = self.session_payload();
        payload.insert("cmd".to_owned(), json!(cmd));
        if let Some(workdir) = &wishes.workdir {
            payload.insert("workdir".to_owned(), json!(workdir));
        }
        if let Some(timeout_sec) = wishes.timeout_sec {
            payload.insert("timeout_sec".to_owned(), json!(timeout_sec));
        }
        let env = wishes.env.as_ref().unwrap_or(&self.env);
        if env.is_empty() {
            payload.remove("env");
        } else {
            payload.insert("env".to_owned(), json!(env));
        }
        payload
    }

    /// What starts a program in it, its paths as they are in the box. Values of the environment stay as
    /// they are: nobody knows which of them are paths.
    pub fn process_payload(&self, wishes: &ProcessWishes) -> Map<String, Value> {
        let cwd = wishes.cwd.as_deref().unwrap_or(&self.workdir);
        let (command, args, cwd) = match &self.host_path {
            None => (wishes.command.clone(), wishes.args.clone(), cwd.to_owned()),
            Some(host) => {
                let in_the_box = |path: &str| rewrite_path(path, host, &self.mount_path);
                (
                    rewrite_command(&wishes.command, host, &self.mount_path),
                    wishes.args.iter().map(|arg| in_the_box(arg)).collect(),
                    in_the_box(cwd),
                )
            }
        };
        let mut payload = Map::new();
        if let Some(process_id) = &wishes.process_id {
            payload.insert("process_id".to_owned(), json!(process_id));
        }
        payload.insert("command".to_owned(), json!(command));
        payload.insert("args".to_owned(), json!(args));
        payload.insert("env".to_owned(), json!(wishes.env));
        payload.insert("cwd".to_owned(), json!(cwd));
        payload
    }
}

/// The path in the box of a path on the host, where the host's directory `host` is at `mount`. What lies
/// elsewhere, and what is not an absolute path, stays as it is.
pub fn rewrite_path(path: &str, host: &Path, mount: &str) -> String {
    match tail(Path::new(path), host) {
        Some(tail) => mounted(mount, &tail),
        None => path.to_owned(),
    }
}

/// As [`rewrite_path`], but the interpreter of a virtual environment becomes the box's own: the
/// environment was made for another machine.
pub fn rewrite_command(command: &str, host: &Path, mount: &str) -> String {
    let Some(tail) = tail(Path::new(command), host) else {
        return command.to_owned();
    };
    if is_venv_python(&tail) {
        return "python".to_owned();
    }
    mounted(mount, &tail)
}

/// The directory of the project to which a virtual environment's `bin` belongs; any other directory is
/// its own.
pub fn unwrap_venv(directory: &Path) -> PathBuf {
    let components: Vec<Component<'_>> = directory.components().collect();
    for at in (1..components.len()).rev() {
        if is_one_of(components[at], &BINS) && is_one_of(components[at - 1], &VENVS) {
            let above: PathBuf = components[..at - 1].iter().collect();
            return if above.as_os_str().is_empty() {
                PathBuf::from("/")
            } else {
                above
            };
        }
    }
    directory.to_owned()
}

/// The directory of the host that holds everything a command line names by absolute path, unless that is
/// the whole host or nothing.
pub fn infer_host_path(command: &str, args: &[String]) -> Option<PathBuf> {
    std::iter::once(command)
        .chain(args.iter().map(String::as_str))
        .map(Path::new)
        .filter(|path| path.is_absolute())
        .filter_map(directory_of)
        .map(|directory| realpath(Path::new("/"), &unwrap_venv(&directory)))
        .reduce(|common, next| {
            common
                .components()
                .zip(next.components())
                .take_while(|(one, other)| one == other)
                .map(|(one, _)| one)
                .collect()
        })
        .filter(|common| common.parent().is_some())
}

/// A link counts as being there even if what it names is not: the interpreter of a virtual environment
/// is a link, and often to a Python that has been replaced since.
fn directory_of(path: &Path) -> Option<PathBuf> {
    std::fs::symlink_metadata(path).ok()?;
    if path.is_dir() {
        return Some(path.to_owned());
    }
    path.parent().map(Path::to_owned)
}

/// The part of a path below the host's directory. A link in it belongs to it wherever it leads, and a
/// link elsewhere that leads into it does too. Relative paths are the program's own: what they mean is
/// decided where it runs, not here.
fn tail(path: &Path, host: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let root = Path::new("/");
    let host = realpath(root, host);
    let itself = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => realpath(root, parent).join(name),
        _ => realpath(root, path),
    };
    let below = |path: &Path| path.strip_prefix(&host).ok().map(Path::to_owned);
    below(&itself).or_else(|| below(&realpath(root, path)))
}

fn mounted(mount: &str, tail: &Path) -> String {
    if tail.as_os_str().is_empty() {
        return mount.to_owned();
    }
    // Paths that are no text cannot have come from a command line of text.
    format!("{}/{}", mount.trim_end_matches('/'), tail.to_string_lossy())
}

/// `<venv>/<bin>/python*`, however deep.
fn is_venv_python(tail: &Path) -> bool {
    let components: Vec<Component<'_>> = tail.components().collect();
    let [.., venv, bin, program] = components.as_slice() else {
        return false;
    };
    let program = program.as_os_str().to_string_lossy();
    is_one_of(*venv, &VENVS) && is_one_of(*bin, &BINS) && program.starts_with("python")
}

fn is_one_of(component: Component<'_>, names: &[&str]) -> bool {
    names.iter().any(|name| component.as_os_str() == *name)
}
