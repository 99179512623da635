//! Parses `uvx`, `uv tool run` and `uv run`.
//!
//! Options that do not affect the installed packages are ignored. Common options that do are passed to the installer.
//! All others are refused, so that no version pin is lost silently.

use std::path::Path;

use super::command::Launcher;
use super::options::{OptionSet, contains};
use super::package::{plain, python_name, requirement};
use crate::hosting::launch::LaunchError;

/// A program from a Python package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PythonTool {
    pub(crate) from: String,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) install: PythonInstall,
}

/// Installer settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PythonInstall {
    /// Requirements. `-e` and `-r` precede those that are paths.
    pub(crate) with: Vec<String>,
    pub(crate) python: Option<String>,
    /// Options for `uv pip`. pip is used if uv is not available, and fails on an option that it does not support.
    pub(crate) options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The interpreter with its arguments.
    Python,
    Program(String),
}

/// A program that runs in the environment of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectRun {
    pub(crate) target: Target,
    pub(crate) args: Vec<String>,
    pub(crate) install: PythonInstall,
    pub(crate) extras: Vec<String>,
    pub(crate) requires_lock: bool,
    /// True for `python3`. Every box with Python has it, so it is not looked up during an install.
    pub(crate) is_python3: bool,
    /// Working directory.
    pub(crate) directory: Option<String>,
    pub(crate) project: Option<String>,
    pub(crate) has_project: bool,
}

impl ProjectRun {
    pub(crate) fn of(target: Target, args: &[String]) -> Self {
        Self {
            target,
            args: args.to_vec(),
            install: PythonInstall::default(),
            extras: Vec::new(),
            requires_lock: false,
            is_python3: false,
            directory: None,
            project: None,
            has_project: true,
        }
    }
}

const FLAGS: &str = "-q --quiet -v --verbose -n --no-cache --native-tls --no-progress --isolated \
     --refresh --reinstall -U --upgrade";
const VALUE_OPTIONS: &str = "-p --python -w --with --with-editable --with-requirements --cache-dir --directory \
     --project";
/// Options that are passed on to the installer.
const INSTALL_OPTIONS: &str = "--index --default-index -i --index-url --extra-index-url -f --find-links \
     --prerelease --resolution --exclude-newer --index-strategy";

const UV: OptionSet = OptionSet {
    launcher: "uv",
    flags: &[FLAGS],
    valued: &[VALUE_OPTIONS, INSTALL_OPTIONS],
};
const UVX: OptionSet = OptionSet {
    launcher: "uvx",
    flags: &[FLAGS],
    valued: &[VALUE_OPTIONS, INSTALL_OPTIONS, "--from"],
};
const UV_RUN: OptionSet = OptionSet {
    launcher: "uv run",
    flags: &[
        FLAGS,
        "--no-project --no-sync --frozen --locked --no-dev",
        "-s --script -m --module",
    ],
    valued: &[VALUE_OPTIONS, INSTALL_OPTIONS, "--extra"],
};

pub(crate) fn uv(args: &[String]) -> Result<Launcher, LaunchError> {
    let parsed = UV.read(args)?;
    let rest: Vec<_> = parsed.rest.iter().take(2).map(String::as_str).collect();
    match rest.as_slice() {
        ["run", ..] => uv_run(&parsed.options, &parsed.rest[1..]).map(Launcher::Project),
        ["tool", "run" | "uvx"] => uvx(&parsed.rest[2..]).map(Launcher::PythonTool),
        [] => Err(LaunchError::NothingToRun {
            launcher: "uv".to_owned(),
        }),
        _ => Err(LaunchError::Unsupported {
            launcher: format!("uv {}", rest.join(" ")),
            why: "it does not start a server",
            instead: "use `uv run` or `uv tool run`",
        }),
    }
}

type Options = [(String, Option<String>)];

pub(crate) fn uvx(args: &[String]) -> Result<PythonTool, LaunchError> {
    let parsed = UVX.read(args)?;
    let (first, args) = parsed.rest.split_first().ok_or(LaunchError::NothingToRun {
        launcher: "uvx".to_owned(),
    })?;
    let from = last(&parsed.options, "--from");
    let program = match from {
        Some(_) => first.as_str(),
        None => python_name(first),
    };
    if program.is_empty() || program.contains('/') {
        return Err(LaunchError::BadPackage {
            installer: "pip",
            word: first.clone(),
            why: "the program is not known; write --from PACKAGE PROGRAM",
        });
    }
    Ok(PythonTool {
        from: requirement(from.unwrap_or(first))?,
        program: program.to_owned(),
        args: args.to_vec(),
        install: install(&parsed.options)?,
    })
}

fn uv_run(global_options: &Options, args: &[String]) -> Result<ProjectRun, LaunchError> {
    let parsed = UV_RUN.read(args)?;
    let mut options = global_options.to_vec();
    options.extend(parsed.options);
    let has = |names: &[&str]| {
        options
            .iter()
            .any(|(name, _)| names.contains(&name.as_str()))
    };
    let (first, rest) = parsed.rest.split_first().ok_or(LaunchError::NothingToRun {
        launcher: "uv run".to_owned(),
    })?;
    let (target, args) = if has(&["-m", "--module"]) {
        let mut args = vec!["-m".to_owned()];
        args.extend_from_slice(parsed.rest);
        (Target::Python, args)
    } else if has(&["-s", "--script"]) || is_script(first) {
        (Target::Python, parsed.rest.to_vec())
    } else if matches!(first.as_str(), "python" | "python3") {
        (Target::Python, rest.to_vec())
    } else {
        (Target::Program(first.clone()), rest.to_vec())
    };
    let extras = options
        .iter()
        .filter(|(name, _)| name == "--extra")
        .filter_map(|(_, value)| value.as_deref())
        .map(plain)
        .collect::<Result<_, _>>()?;
    Ok(ProjectRun {
        install: install(&options)?,
        extras,
        requires_lock: has(&["--locked", "--frozen"]),
        directory: last(&options, "--directory").map(str::to_owned),
        project: last(&options, "--project").map(str::to_owned),
        has_project: !has(&["--no-project"]),
        ..ProjectRun::of(target, &args)
    })
}

fn is_script(word: &str) -> bool {
    Path::new(word)
        .extension()
        .is_some_and(|ending| ending == "py")
}

/// The last value of an option.
fn last<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    let mut values = options.iter().rev().filter(|(option, _)| option == name);
    values.next()?.1.as_deref()
}

fn install(options: &Options) -> Result<PythonInstall, LaunchError> {
    let mut install = PythonInstall::default();
    for (name, value) in options {
        let Some(value) = value else {
            continue;
        };
        match name.as_str() {
            "-w" | "--with" => {
                for word in value.split(',').filter(|word| !word.is_empty()) {
                    install.with.push(requirement(word)?);
                }
            }
            "--with-editable" => install.with.extend(["-e".to_owned(), plain(value)?]),
            "--with-requirements" => install.with.extend(["-r".to_owned(), plain(value)?]),
            "-p" | "--python" => install.python = Some(plain(value)?),
            option if contains(&[INSTALL_OPTIONS], option) => {
                install.options.extend([name.clone(), plain(value)?]);
            }
            _ => {}
        }
    }
    Ok(install)
}

#[cfg(test)]
mod tests;
