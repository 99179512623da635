//! Wraps the command of a Python project so that it runs in a virtual environment, which is created once.
//!
//! The environment is stored in the home directory of the box under the hash of the project's manifests, because the project
//! may be read-only. The helper contains no single quote, so that it can be quoted with them.

/// The files that say what a Python project needs, in the order in which they are hashed.
pub const MANIFESTS: [&str; 4] = [
    "requirements.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
];

/// How long a command waits for another that builds the same environment.
const LONGEST_WAIT_SEC: u32 = 120;

const PREAMBLE: &str = include_str!("python_env.sh");
const HELPER: &str = include_str!("python_env.py");

/// What a project's top directory tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PythonProject {
    /// It can be installed: `pyproject.toml`, `setup.py` or `setup.cfg`.
    Package,
    /// It has `requirements.txt` and nothing to install.
    Requirements,
}

impl PythonProject {
    /// By the names in its top directory.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        for name in names {
            match name {
                "pyproject.toml" | "setup.py" | "setup.cfg" => return Some(Self::Package),
                "requirements.txt" => found = Some(Self::Requirements),
                _ => {}
            }
        }
        found
    }
}

/// Whether commands in a directory with these names want an environment.
pub fn wants_python_env<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    names
        .into_iter()
        .any(|name| name == ".venv" || MANIFESTS.contains(&name))
}

/// The command, run in the environment of the project at `project` in the box.
pub fn with_python_env(command: &str, project: &str) -> String {
    waiting(command, project, LONGEST_WAIT_SEC)
}

fn waiting(command: &str, project: &str, wait_sec: u32) -> String {
    let preamble = PREAMBLE
        .replace("@WAIT@", &wait_sec.to_string())
        .replace("@HELPER@", HELPER.trim_end())
        // Last: a project's name is not ours, and must not be read for marks.
        .replacen("@PROJECT@", &quoted(project), 1);
    format!("{preamble}{command}")
}

/// One word for a shell, whatever is in it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
