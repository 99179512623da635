//! Parses the command of a server and recognizes its launcher.
//!
//! Reads the file system only to recognize Python virtual environments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::npm;
use super::npm::NodeTool;
use super::uv;
use super::uv::{ProjectRun, PythonTool, Target};
use crate::hosting::launch::LaunchError;
use crate::hosting::launch::workspace::paths::Venv;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    PythonTool(PythonTool),
    Project(ProjectRun),
    NodeTool(NodeTool),
    /// `node`, or `npm start` and similar.
    NodeRun {
        program: &'static str,
        args: Vec<String>,
    },
    Plain {
        command: String,
        args: Vec<String>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedCommand {
    pub(crate) launcher: Launcher,
    /// Variables set by an `env` prefix.
    pub(crate) env: BTreeMap<String, String>,
    /// The virtual environment on the host that contains the command.
    pub(crate) venv: Option<PathBuf>,
    /// The words of the command that may be host paths.
    pub(crate) words: Vec<String>,
}

const IS_URL: &str = "it is a URL, not a command";
const STARTS_CONTAINER: &str = "it starts a container, and a box has no container engine";

impl ParsedCommand {
    pub(crate) fn read(command: &str, args: &[String]) -> Result<Self, LaunchError> {
        let mut words = vec![command.trim().to_owned()];
        words.extend_from_slice(args);
        let mut env = BTreeMap::new();
        let mut words = words.as_slice();
        while let Some(inner) = unwrapped(words, &mut env) {
            words = inner;
        }
        let (command, args) = words.split_first().ok_or(LaunchError::NothingToRun {
            launcher: command.to_owned(),
        })?;
        check_supported(command, args)?;
        let path = Path::new(command);
        let venv = path.is_absolute().then(|| Venv::of(path)).flatten();
        let launcher = match venv.as_ref().and_then(|venv| venv.program.as_deref()) {
            Some(program) => in_venv(program, args),
            None => launcher(command, args)?,
        };
        let mut words: Vec<_> = args.to_vec();
        if venv.is_some() || matches!(launcher, Launcher::Plain { .. }) {
            words.push(command.clone());
        }
        Ok(Self {
            launcher,
            env,
            venv: venv.map(|venv| venv.root),
            words,
        })
    }

    /// Words with the extension of a script.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &Path> {
        self.words.iter().map(Path::new).filter(|path| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| SCRIPT_EXTENSIONS.contains(&ending))
        })
    }
}

const SCRIPT_EXTENSIONS: [&str; 9] = ["py", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx"];

/// Strips `cmd /c` and `env A=B`.
fn unwrapped<'a>(words: &'a [String], env: &mut BTreeMap<String, String>) -> Option<&'a [String]> {
    let (command, arguments) = words.split_first()?;
    let name = program_name(command);
    match name.rsplit('\\').next().unwrap_or(&name) {
        "cmd" if arguments.first()?.eq_ignore_ascii_case("/c") => arguments.get(1..),
        "env" if !arguments.first()?.starts_with('-') => {
            let count = arguments
                .iter()
                .take_while(|word| word.contains('='))
                .count();
            for word in arguments.iter().take(count) {
                if let Some((name, value)) = word.split_once('=') {
                    env.insert(name.to_owned(), value.to_owned());
                }
            }
            arguments.get(count..)
        }
        _ => None,
    }
}

/// The file name without Windows extensions.
fn program_name(command: &str) -> String {
    let name = command.rsplit('/').next().unwrap_or(command);
    let name = name.to_ascii_lowercase();
    [".exe", ".cmd"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name)
        .to_owned()
}

fn in_venv(program: &str, args: &[String]) -> Launcher {
    let target = if program.starts_with("python") {
        Target::Python
    } else {
        Target::Program(program.to_owned())
    };
    Launcher::Project(ProjectRun::of(target, args))
}

fn launcher(command: &str, args: &[String]) -> Result<Launcher, LaunchError> {
    let name = program_name(command);
    Ok(match name.as_str() {
        "uvx" => Launcher::PythonTool(uv::uvx(args)?),
        "uv" => uv::uv(args)?,
        "npx" => Launcher::NodeTool(npm::npx(args)?),
        "npm" => npm::npm(args)?,
        "node" => Launcher::NodeRun {
            program: "node",
            args: args.to_vec(),
        },
        _ if is_python(&name) => {
            let mut run = ProjectRun::of(Target::Python, args);
            run.install.python = python_version(&name);
            run.is_python3 = name == "python3";
            Launcher::Project(run)
        }
        _ => Launcher::Plain {
            command: command.to_owned(),
            args: args.to_vec(),
        },
    })
}

fn is_python(name: &str) -> bool {
    matches!(name, "python" | "python2" | "python3") || python_version(name).is_some()
}

/// The version in names like `python3.12`.
fn python_version(name: &str) -> Option<String> {
    let version = name.strip_prefix("python")?;
    let minor = version.strip_prefix("3.")?;
    let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| version.to_owned())
}

fn check_supported(command: &str, args: &[String]) -> Result<(), LaunchError> {
    let first = args.first().map(String::as_str);
    let (reason, instead) = if command.starts_with("http://") || command.starts_with("https://") {
        (
            IS_URL,
            "connect clients to that URL directly, or use `npx mcp-remote URL`",
        )
    } else if command.contains('\\') {
        (
            "it is a Windows path",
            "use only the name of the launcher, such as `npx` or `uvx`",
        )
    } else {
        match (program_name(command).as_str(), first) {
            ("docker" | "podman" | "nerdctl", _) => (
                STARTS_CONTAINER,
                "set box.image to the image, and the command to the program in the image",
            ),
            ("bunx" | "pnpx", _) | ("bun", Some("x")) | ("pnpm" | "yarn", Some("dlx")) => (
                "only npm is supported for npm packages",
                "use `npx` with the same package",
            ),
            ("pipx", _) => (
                "only uv is supported for Python packages",
                "use `uvx --from PACKAGE PROGRAM`; Boxwood gets uv where a box has none",
            ),
            ("sudo" | "doas", _) => (
                "a box has no other users",
                "remove it and start the command directly",
            ),
            _ => return Ok(()),
        }
    };
    Err(LaunchError::Unsupported {
        launcher: command.to_owned(),
        why: reason,
        instead,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<ParsedCommand, LaunchError> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let (command, args) = words.split_first().expect("there is a command");
        ParsedCommand::read(command, args)
    }

    #[track_caller]
    fn launcher(line: &str) -> Launcher {
        read(line).expect("it is known").launcher
    }

    #[test]
    fn launchers_are_recognized_with_any_path() {
        for line in [
            "uvx mcp-server-time",
            "/opt/homebrew/bin/uvx mcp-server-time",
            "uvx.exe mcp-server-time",
            "uv tool run mcp-server-time",
            "cmd /c uvx mcp-server-time",
            "C:\\Windows\\cmd.exe /C uvx mcp-server-time",
            "env A=1 uvx mcp-server-time",
        ] {
            assert!(matches!(launcher(line), Launcher::PythonTool(_)), "{line}");
        }
        for line in [
            "npx -y @scope/server",
            "/home/user/.nvm/versions/node/v20/bin/npx -y @scope/server",
            "cmd /C npx.cmd -y @scope/server",
        ] {
            assert!(matches!(launcher(line), Launcher::NodeTool(_)), "{line}");
        }
        for (line, name) in [("node a.js", "node"), ("npm start", "npm")] {
            let found = launcher(line);
            assert!(
                matches!(found, Launcher::NodeRun { program, .. } if program == name),
                "{line}"
            );
        }
        assert!(matches!(launcher("uv run a.py"), Launcher::Project(_)));
        for line in [
            "mcp-server",
            "/srv/server --x",
            "./run.sh",
            "pythonista",
            "deno run x",
        ] {
            assert!(matches!(launcher(line), Launcher::Plain { .. }), "{line}");
        }
    }

    #[test]
    fn the_python_version_is_read_from_the_name() {
        for (line, version) in [
            ("python a.py", None),
            ("python3 a.py", None),
            ("/usr/bin/python3.12 a.py", Some("3.12")),
        ] {
            let Launcher::Project(run) = launcher(line) else {
                panic!("{line} is a Python");
            };
            assert_eq!(run.install.python.as_deref(), version);
            assert_eq!(run.target, Target::Python);
            assert_eq!(run.args, ["a.py"]);
        }
    }

    #[test]
    fn a_program_in_a_virtual_environment_belongs_to_its_project() {
        let parsed = read("/no/such/.venv/bin/python3.9 a.py").expect("it is known");
        assert_eq!(parsed.venv.as_deref(), Some(Path::new("/no/such/.venv")));
        assert!(
            parsed
                .words
                .contains(&"/no/such/.venv/bin/python3.9".to_owned())
        );
        let Launcher::Project(run) = parsed.launcher else {
            panic!("it is a project");
        };
        assert_eq!((run.target, run.install.python), (Target::Python, None));
        let Launcher::Project(run) = launcher("/no/such/.venv/bin/tool --x") else {
            panic!("it is a project");
        };
        assert_eq!(run.target, Target::Program("tool".to_owned()));
    }

    #[test]
    fn an_env_prefix_sets_variables() {
        let parsed = read("/usr/bin/env A=1 B=x=y server --c=d").expect("it is known");
        assert_eq!(parsed.env["A"], "1");
        assert_eq!(parsed.env["B"], "x=y");
        let Launcher::Plain { command, args } = parsed.launcher else {
            panic!("it is plain");
        };
        assert_eq!(
            (command.as_str(), args),
            ("server", vec!["--c=d".to_owned()])
        );
    }

    #[test]
    fn unsupported_launchers_are_refused_with_a_hint() {
        for (line, expected) in [
            ("docker run -i mcp/time", "box.image"),
            ("/usr/bin/podman run x", "box.image"),
            ("bunx server", "npx"),
            ("bun x server", "npx"),
            ("pnpm dlx server", "npx"),
            ("yarn dlx server", "npx"),
            ("pipx run server", "uvx"),
            ("npm exec server", "npx"),
            ("https://example.org/mcp", "mcp-remote"),
            ("sudo npx server", "remove it"),
            ("C:\\node\\npx.cmd server", "npx"),
        ] {
            let error = read(line).expect_err(line);
            let hint = error.hint().expect("there is a way out");
            assert!(hint.contains(expected), "{line}: {hint}");
            assert!(error.is_permanent());
        }
    }

    #[test]
    fn a_launcher_without_a_package_is_an_error() {
        for line in ["npx", "npx -y", "uvx", "uvx --from x", "env A=1", "uv run"] {
            let error = read(line).expect_err(line);
            assert!(
                matches!(error, LaunchError::NothingToRun { .. }),
                "{line}: {error}"
            );
        }
    }
}
