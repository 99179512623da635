//! The launchers of Python: `uvx`, `uv tool run`, `uv run` and `pipx run`.
//!
//! Comes in: their arguments. Goes out: which packages they would install, and what they would start.
//! Never here: an install. Options that only decide how uv works, and not what comes of it, are passed
//! over. Those that decide what is installed are passed on, or refused: a pin that is not kept is worse
//! than none.

use std::path::Path;

use super::LaunchError;
use super::asked::Launcher;
use super::options::Known;
use super::package::{plain, python_name, requirement};

/// A program that a package brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PythonTool {
    pub(super) from: String,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) how: PythonInstall,
}

/// What both installers are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PythonInstall {
    /// Requirements, with `-e` and `-r` in front of those that are paths.
    pub(super) with: Vec<String>,
    pub(super) python: Option<String>,
    /// Which packages are taken and from where, in words that uv and pip share where both know them. A
    /// pip that does not know one fails.
    pub(super) options: Vec<String>,
    /// The same for `uv sync`, as far as a lock leaves anything open.
    sync: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The interpreter, with arguments of its own.
    Python,
    Program(String),
}

/// Something that is started in the environment of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectRun {
    pub(super) target: Target,
    pub(super) args: Vec<String>,
    pub(super) python: Option<String>,
    pub(super) with: Vec<String>,
    pub(super) options: Vec<String>,
    pub(super) extras: Vec<String>,
    /// Options that only `uv sync` knows, and that need a lock.
    pub(super) by_lock: Vec<String>,
    /// Options for `uv sync` that others know in other words.
    pub(super) sync: Vec<String>,
    /// Nothing else than what the lock says.
    pub(super) is_locked: bool,
    pub(super) is_editable: bool,
    /// Every box with Python calls it so: nobody has to look for it.
    pub(super) interpreter: Option<&'static str>,
    /// Where it is started.
    pub(super) directory: Option<String>,
    pub(super) project: Option<String>,
    pub(super) has_project: bool,
}

impl ProjectRun {
    pub(super) fn of(target: Target, args: &[String]) -> Self {
        Self {
            target,
            args: args.to_vec(),
            python: None,
            with: Vec::new(),
            options: Vec::new(),
            extras: Vec::new(),
            by_lock: Vec::new(),
            sync: Vec::new(),
            is_locked: false,
            is_editable: true,
            interpreter: None,
            directory: None,
            project: None,
            has_project: true,
        }
    }
}

macro_rules! uv_flags {
    ($($more:literal),* $(,)?) => {
        &[
            "-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--native-tls",
            "--system-certs", "--no-progress", "--no-config", "--isolated", "--refresh", "--reinstall",
            "--force-reinstall", "-U", "--upgrade", "--managed-python", "--no-managed-python",
            "--no-python-downloads", "--no-build", "--no-binary", "--no-build-isolation", "--no-sources",
            "--preview", "--lfs", "--compile-bytecode", "--no-env-file", "--no-index",
            $($more),*
        ]
    };
}

macro_rules! uv_valued {
    ($($more:literal),* $(,)?) => {
        &[
            "-p", "--python", "-w", "--with", "--with-editable", "--with-requirements", "--index",
            "--default-index", "-i", "--index-url", "--extra-index-url", "-f", "--find-links",
            "--prerelease", "--resolution", "--index-strategy", "--keyring-provider", "--exclude-newer",
            "--link-mode", "--color", "--cache-dir", "--directory", "--project", "--allow-insecure-host",
            "--python-preference", "--refresh-package", "--reinstall-package", "-P",
            "--upgrade-package", "--no-build-package", "--no-binary-package", "--fork-strategy",
            "-C", "--config-setting",
            $($more),*
        ]
    };
}

const UV: Known = Known {
    launcher: "uv",
    flags: uv_flags![],
    valued: uv_valued![],
};
const UVX: Known = Known {
    launcher: "uvx",
    flags: uv_flags![],
    valued: uv_valued!["--from"],
};
const UV_RUN: Known = Known {
    launcher: "uv run",
    flags: uv_flags![
        "--no-project",
        "--no-sync",
        "--frozen",
        "--locked",
        "--no-dev",
        "--dev",
        "--only-dev",
        "--all-extras",
        "--active",
        "--no-active",
        "--exact",
        "--no-editable",
        "--all-packages",
        "--no-default-groups",
        "--all-groups",
        "-s",
        "--script",
        "-m",
        "--module",
    ],
    valued: uv_valued![
        "--extra",
        "--no-extra",
        "--group",
        "--no-group",
        "--only-group",
        "--package",
    ],
};
/// Which parts of a project are installed.
const BY_LOCK: [&str; 10] = [
    "--all-extras",
    "--no-extra",
    "--group",
    "--no-group",
    "--only-group",
    "--all-groups",
    "--dev",
    "--only-dev",
    "--package",
    "--all-packages",
];
const PIPX: Known = Known {
    launcher: "pipx run",
    flags: &[
        "--no-cache",
        "--pypackages",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
    ],
    valued: &[
        "--spec",
        "--python",
        "--with",
        "-i",
        "--index-url",
        "--backend",
    ],
};

pub(super) fn uv(args: &[String]) -> Result<Launcher, LaunchError> {
    let before = UV.read(args)?;
    let rest: Vec<_> = before.rest.iter().take(2).map(String::as_str).collect();
    match rest.as_slice() {
        ["run", ..] => uv_run(&before.options, &before.rest[1..]).map(Launcher::Project),
        ["tool", "run" | "uvx"] => uvx(&before.rest[2..]).map(Launcher::PythonTool),
        [] => Err(LaunchError::NothingToRun {
            launcher: "uv".to_owned(),
        }),
        _ => Err(LaunchError::Unsupported {
            launcher: format!("uv {}", rest.join(" ")),
            why: "it starts no server",
            instead: "use `uv run` or `uv tool run`",
        }),
    }
}

pub(super) fn uvx(args: &[String]) -> Result<PythonTool, LaunchError> {
    let found = UVX.read(args)?;
    tool("uvx", &found.options, found.rest)
}

pub(super) fn pipx(args: &[String]) -> Result<PythonTool, LaunchError> {
    let unsupported = || LaunchError::Unsupported {
        launcher: "pipx".to_owned(),
        why: "only `pipx run` starts a server",
        instead: "use `pipx run PACKAGE`",
    };
    let rest = match args.split_first() {
        Some((run, rest)) if run == "run" => rest,
        _ => return Err(unsupported()),
    };
    let found = PIPX.read(rest)?;
    tool("pipx run", &found.options, found.rest)
}

type Options = [(String, Option<String>)];

fn tool(launcher: &str, options: &Options, rest: &[String]) -> Result<PythonTool, LaunchError> {
    let (asked, args) = rest
        .split_first()
        .ok_or_else(|| LaunchError::NothingToRun {
            launcher: launcher.to_owned(),
        })?;
    let from = options
        .iter()
        .rev()
        .find(|(name, _)| name == "--from" || name == "--spec")
        .and_then(|(_, value)| value.as_deref());
    let package = requirement(from.unwrap_or(asked))?;
    let program = match from {
        Some(_) => asked.as_str(),
        None => python_name(asked),
    };
    if program.is_empty() || program.contains('/') {
        return Err(LaunchError::BadPackage {
            installer: "pip",
            word: asked.clone(),
            why: "it does not say which program to run; write --from PACKAGE PROGRAM",
        });
    }
    Ok(PythonTool {
        from: package,
        program: program.to_owned(),
        args: args.to_vec(),
        how: install(options)?,
    })
}

fn uv_run(before: &Options, args: &[String]) -> Result<ProjectRun, LaunchError> {
    let found = UV_RUN.read(args)?;
    let mut options = before.to_vec();
    options.extend(found.options);
    let has = |names: &[&str]| {
        options
            .iter()
            .any(|(name, _)| names.contains(&name.as_str()))
    };
    let last = |name: &str| {
        options
            .iter()
            .rev()
            .find(|(option, _)| option == name)
            .and_then(|(_, value)| value.clone())
    };
    let (first, rest) = found.rest.split_first().ok_or(LaunchError::NothingToRun {
        launcher: "uv run".to_owned(),
    })?;
    let is_script_asked = has(&["-s", "--script"]) || is_script(first);
    let (target, args) = if has(&["-m", "--module"]) {
        let mut args = vec!["-m".to_owned()];
        args.extend_from_slice(found.rest);
        (Target::Python, args)
    } else if is_script_asked {
        (Target::Python, found.rest.to_vec())
    } else if matches!(first.as_str(), "python" | "python3") {
        (Target::Python, rest.to_vec())
    } else {
        (Target::Program(first.clone()), rest.to_vec())
    };
    let how = install(&options)?;
    let by_lock = options
        .iter()
        .filter(|(name, _)| BY_LOCK.contains(&name.as_str()))
        .map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.clone(),
        })
        .collect();
    let extras = options
        .iter()
        .filter(|(name, _)| name == "--extra")
        .filter_map(|(_, value)| value.clone())
        .map(|extra| plain(&extra))
        .collect::<Result<_, _>>()?;
    Ok(ProjectRun {
        target,
        args,
        python: how.python,
        with: how.with,
        options: how.options,
        extras,
        by_lock,
        sync: how.sync,
        is_locked: has(&["--locked", "--frozen"]),
        is_editable: !has(&["--no-editable"]),
        interpreter: None,
        directory: last("--directory"),
        project: last("--project"),
        has_project: !has(&["--no-project"]),
    })
}

fn is_script(word: &str) -> bool {
    Path::new(word)
        .extension()
        .is_some_and(|ending| ending == "py")
}

fn install(options: &Options) -> Result<PythonInstall, LaunchError> {
    let mut how = PythonInstall::default();
    for (name, value) in options {
        let Some(value) = value else {
            how.flag(name);
            continue;
        };
        match name.as_str() {
            "-w" | "--with" => {
                for word in value.split(',').filter(|word| !word.is_empty()) {
                    how.with.push(requirement(word)?);
                }
            }
            "--with-editable" => how.with.extend(["-e".to_owned(), plain(value)?]),
            "--with-requirements" => how.with.extend(["-r".to_owned(), plain(value)?]),
            "-p" | "--python" => how.python = Some(plain(value)?),
            "-i" | "--index-url" | "--default-index" => how.told("--index-url", &address(value)),
            "--extra-index-url" | "--index" => how.told("--extra-index-url", &address(value)),
            "-f" | "--find-links" => how.told("--find-links", value),
            "--prerelease" if value == "allow" => how.options.push("--pre".to_owned()),
            // Only uv knows these.
            "--prerelease" | "--resolution" | "--fork-strategy" | "--index-strategy"
            | "--exclude-newer" | "--keyring-provider" => how.told(name, &plain(value)?),
            "--no-build-package" => how.built("--only-binary", name, &plain(value)?),
            "--no-binary-package" => how.built("--no-binary", name, &plain(value)?),
            "-C" | "--config-setting" => how.built("-C", "-C", &plain(value)?),
            _ => {}
        }
    }
    Ok(how)
}

impl PythonInstall {
    fn flag(&mut self, name: &str) {
        match name {
            "--no-index" | "--no-sources" => self.options.push(name.to_owned()),
            "--no-build-isolation" => {
                self.options.push(name.to_owned());
                self.sync.push(name.to_owned());
            }
            "--no-build" => {
                self.told("--only-binary", ":all:");
                self.sync.push(name.to_owned());
            }
            "--no-binary" => {
                self.told("--no-binary", ":all:");
                self.sync.push(name.to_owned());
            }
            _ => {}
        }
    }

    fn told(&mut self, option: &str, value: &str) {
        self.options.extend([option.to_owned(), value.to_owned()]);
    }

    /// How packages are built: `uv sync` has other words for it, and a lock says nothing about it.
    fn built(&mut self, option: &str, of_sync: &str, value: &str) {
        self.told(option, value);
        self.sync.extend([of_sync.to_owned(), value.to_owned()]);
    }
}

/// Without the name that uv lets people give an index.
fn address(index: &str) -> String {
    match index.split_once('=') {
        Some((name, address)) if !name.contains(['/', ':']) => address.to_owned(),
        _ => index.to_owned(),
    }
}

#[cfg(test)]
mod tests;
