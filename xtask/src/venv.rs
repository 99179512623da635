//! A Python environment with exactly what a requirements file pins.
//!
//! An environment is installed once, and again if its requirements file changes. A file that begins with `-r OTHER` gets
//! the packages of `OTHER` from an environment that all such files share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::{check, output, target_dir};
use crate::test::needs::{Package, install_packages};

/// How often a long installation prints its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum length of a printed line of the installer.
const SHOWN_CHARS: usize = 100;

/// Debian keeps this part of Python in a package of its own.
pub(crate) const DEBIAN_VENV: Package = Package {
    name: "python3-venv",
    proof: "/usr/share/doc/python3-venv",
};

pub(crate) fn ensure(directory: &Path, requirements: &Path) -> Result<PathBuf> {
    // Two threads may ask for the same environment, or for two that share packages.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _guard = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);

    let pinned = read(requirements)?;
    let shared = match included(&pinned) {
        None => None,
        Some(name) => {
            let file = requirements.with_file_name(name);
            let python = ensure_one(&target_dir().join("python"), &file, None)?;
            Some((python, read(&file)?))
        }
    };
    ensure_one(directory, requirements, shared)
}

/// One environment. `shared` is the Python of the environment whose packages this one sees too, and their pins.
fn ensure_one(
    directory: &Path,
    requirements: &Path,
    shared: Option<(PathBuf, String)>,
) -> Result<PathBuf> {
    let base = base_python()?;
    let pinned = read(requirements)?;
    let version = output(Command::new(&base).args(["-c", "import sys; print(sys.version)"]))?;
    let (shared_python, shared_pins) = shared.unzip();
    // The text itself instead of its hash, so that a difference can be read.
    let stamp = format!(
        "# {} {}\n{pinned}{}",
        base.display(),
        version.trim(),
        shared_pins.unwrap_or_default()
    );
    let stamp_file = directory.join("boxwood-stamp.txt");
    let python = directory.join("bin/python");
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Ok(python);
    }

    println!(
        "installing {} packages into {} (once)",
        count(&pinned),
        directory.display()
    );
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("`{}` could not be removed", directory.display()))?;
    }
    let mut make = Command::new(&base);
    make.args(["-m", "venv"]);
    if let Some(shared_python) = &shared_python {
        check(make.arg("--without-pip").arg(directory))?;
        let packages = packages_dir(shared_python)?;
        // Python appends the directories in a `.pth` file to its search path: packages of this environment win.
        fs::write(
            packages_dir(&python)?.join("shared.pth"),
            packages.as_os_str().as_encoded_bytes(),
        )?;
    } else {
        check(make.arg(directory))?;
    }
    install(
        shared_python.as_deref().unwrap_or(&python),
        &python,
        directory,
        requirements,
    )?;
    // Last, so that an interrupted installation starts again.
    fs::write(&stamp_file, stamp)?;
    Ok(python)
}

fn read(requirements: &Path) -> Result<String> {
    fs::read_to_string(requirements)
        .with_context(|| format!("`{}` could not be read", requirements.display()))
}

/// The file that a requirements file includes.
fn included(pinned: &str) -> Option<&str> {
    pinned
        .lines()
        .find_map(|line| line.strip_prefix("-r "))
        .map(str::trim)
}

/// Where an environment keeps its packages.
fn packages_dir(python: &Path) -> Result<PathBuf> {
    let code = "import sysconfig; print(sysconfig.get_path('platlib'))";
    let path = output(Command::new(python).args(["-c", code]))?;
    Ok(PathBuf::from(path.trim()))
}

/// Installs into the environment of `python` with the pip of `pip_python`.
fn install(pip_python: &Path, python: &Path, directory: &Path, requirements: &Path) -> Result<()> {
    let log = directory.join("boxwood-install.log");
    let log_file = File::create(&log)?;
    let started = Instant::now();
    let mut pip = Command::new(pip_python)
        .args(["-m", "pip", "--python"])
        .arg(python)
        .args(["install", "--disable-pip-version-check"])
        .args(["--no-deps", "--progress-bar", "off", "--requirement"])
        .arg(requirements)
        .stdin(Stdio::null())
        .stdout(log_file.try_clone()?)
        .stderr(log_file)
        .spawn()
        .context("`pip` could not be started")?;
    let mut next_progress = started + PROGRESS_INTERVAL;
    let status = loop {
        if let Some(status) = pip.try_wait()? {
            break status;
        }
        if Instant::now() >= next_progress {
            next_progress += PROGRESS_INTERVAL;
            println!("  {:>4} s  {}", started.elapsed().as_secs(), last(&log, 1));
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!(
            "`pip install` failed: {status}\n{}\nhint: `{}` has the complete output",
            last(&log, 20),
            log.display()
        );
    }
    println!("installed in {} s", started.elapsed().as_secs());
    Ok(())
}

/// A Python that can make environments: the one on the `PATH`, else Debian's.
pub(crate) fn base_python() -> Result<PathBuf> {
    let ready = |python: &str| {
        output(Command::new(python).args(["-c", "import ensurepip, sys; print(sys.executable)"]))
    };
    if let Ok(path) = ready("python3") {
        return Ok(PathBuf::from(path.trim()));
    }
    install_packages(&[DEBIAN_VENV])?;
    let path = ready("/usr/bin/python3").context("Python cannot make virtual environments")?;
    Ok(PathBuf::from(path.trim()))
}

fn count(pinned: &str) -> usize {
    pinned
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains("=="))
        .count()
}

/// The last lines of a log, each cut to a readable length.
fn last(log: &Path, lines: usize) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| line.chars().take(SHOWN_CHARS).collect::<String>())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pins_are_counted() {
        assert_eq!(count("# about a==b\nx==1\n\n# y\nz==2\n"), 2);
    }

    #[test]
    fn an_included_file_is_found_behind_comments() {
        assert_eq!(
            included("# -r no\n-r ../other.txt\nx==1\n"),
            Some("../other.txt")
        );
        assert_eq!(included("x==1\n"), None);
    }
}
