//! A Python environment with exactly what a requirements file pins.
//!
//! Comes in: a place and the file. Goes out: the environment's Python, made now or found as an
//! earlier run left it. Never here: what the packages are for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::{check, output};
use crate::test::needs::{Package, install_packages};

/// How often a long installation says that it is still alive.
const PROGRESS: Duration = Duration::from_secs(15);
/// What is left of an installer's line.
const SHOWN_CHARS: usize = 100;

/// Debian keeps this part of Python in a package of its own.
pub(crate) const DEBIAN_VENV: Package = Package {
    name: "python3-venv",
    proof: "/usr/share/doc/python3-venv",
};

pub(crate) fn ensure(place: &Path, requirements: &Path) -> Result<PathBuf> {
    let base = base_python()?;
    let pinned = fs::read_to_string(requirements)
        .with_context(|| format!("`{}` could not be read", requirements.display()))?;
    let version = output(Command::new(&base).args(["-c", "import sys; print(sys.version)"]))?;
    // The text itself rather than a hash of it: a difference can then be looked at.
    let stamp = format!("# {} {}\n{pinned}", base.display(), version.trim());
    let stamp_file = place.join("boxwood-stamp.txt");
    let python = place.join("bin/python");
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Ok(python);
    }

    println!(
        "installing {} packages into {} (once; some minutes)",
        count(&pinned),
        place.display()
    );
    if place.exists() {
        fs::remove_dir_all(place)
            .with_context(|| format!("`{}` could not be removed", place.display()))?;
    }
    check(Command::new(&base).args(["-m", "venv"]).arg(place))?;
    install(&python, place, requirements)?;
    // Last, so that an installation which was broken off is begun again.
    fs::write(&stamp_file, stamp)?;
    Ok(python)
}

fn install(python: &Path, place: &Path, requirements: &Path) -> Result<()> {
    let log = place.join("boxwood-install.log");
    let log_file = File::create(&log)?;
    let started = Instant::now();
    let mut pip = Command::new(python)
        .args(["-m", "pip", "install", "--disable-pip-version-check"])
        .args(["--no-deps", "--progress-bar", "off", "--requirement"])
        .arg(requirements)
        .stdin(Stdio::null())
        .stdout(log_file.try_clone()?)
        .stderr(log_file)
        .spawn()
        .context("`pip` could not be started")?;
    let mut next_word = started + PROGRESS;
    let status = loop {
        if let Some(status) = pip.try_wait()? {
            break status;
        }
        if Instant::now() >= next_word {
            next_word += PROGRESS;
            println!("  {:>4} s  {}", started.elapsed().as_secs(), last(&log, 1));
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!("`pip install` failed: {status}\n{}", last(&log, 20));
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
}
