//! Runs the built command, without variables of our environment that change its output.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) fn boxwood() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_boxwood"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BOXWOOD_") {
            command.env_remove(name);
        }
    }
    // The width of help, colours, and the sockets of the developer's own daemon.
    command
        .env_remove("COLUMNS")
        .env_remove("LINES")
        .env("NO_COLOR", "1")
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

/// The exit code and output.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

impl CommandResult {
    /// The exit code and all output, for snapshots.
    pub(crate) fn all(&self) -> String {
        let code = self
            .code
            .map_or_else(|| "signal".to_owned(), |code| code.to_string());
        format!(
            "exit {code}\n--- stdout\n{}--- stderr\n{}",
            self.stdout, self.stderr
        )
    }

    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.all());
        self.stdout
    }
}

pub(crate) fn run(args: &[&str]) -> CommandResult {
    boxwood().args(args).output().expect("boxwood runs").into()
}

pub(crate) fn run_with_input(mut command: Command, input: &[u8]) -> CommandResult {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut stdin = child.stdin.take().expect("piped");
    // Fails if the command ends without reading its stdin.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("boxwood ends").into()
}

/// Replaces values that differ from run to run. Each pointer must exist.
pub(crate) fn hide(mut value: Value, pointers: &[&str]) -> Value {
    for pointer in pointers {
        let found = value
            .pointer_mut(pointer)
            .unwrap_or_else(|| panic!("there is no {pointer}"));
        *found = Value::String("[hidden]".to_owned());
    }
    value
}

/// The long help of a verb, without the spaces clap leaves at the ends of lines.
pub(crate) fn help(args: &[&str]) -> String {
    let mut args = args.to_vec();
    args.push("--help");
    let text = run(&args).ok();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}
