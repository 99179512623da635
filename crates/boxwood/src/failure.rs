//! The error of a verb: printed as `error:`, its causes and `hint:`, with an exit code.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use boxwood_api::{ErrorCode, ErrorDetail, McpErrorBody, McpErrorDetail, McpPhase};
use boxwood_client::ClientError;
use boxwood_policy::{Denial, RulesError};
use boxwood_server::{ConfigError, ServeError};
use boxwood_session::SessionError;

use crate::input;
use crate::output::OutputFormat;
use crate::output::printable::{printable_json, printable_line};

/// Exit codes beside the command's own. The numbers are those of `timeout` and `docker run`.
pub(crate) const EXIT_ERROR: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 2;
pub(crate) const EXIT_TIMEOUT: u8 = 124;
/// `run`, `exec`, `sh`: Boxwood failed, not the command.
pub(crate) const EXIT_BOXWOOD: u8 = 125;

#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    code: ErrorCode,
    hint: Option<String>,
    /// Of a hosted MCP server.
    phase: Option<McpPhase>,
    exit: u8,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: ErrorCode, error: impl Into<anyhow::Error>) -> Self {
        Self {
            error: error.into(),
            code,
            hint: None,
            phase: None,
            exit: EXIT_ERROR,
        }
    }

    /// An invalid argument.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(
            ErrorCode::ValidationError,
            anyhow::Error::msg(message.into()),
        )
        .exit(EXIT_USAGE)
    }

    /// An operation on this machine failed.
    pub(crate) fn local(message: impl Into<String>, source: io::Error) -> Self {
        let error = anyhow::Error::new(source).context(message.into());
        Self::new(ErrorCode::InternalError, error)
    }

    /// A file of this machine, or stdin as `-`, could not be read.
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::local(format!("cannot read {}", input::name(path)), source)
    }

    /// An unexpected error: a text, or an error of a library.
    pub(crate) fn internal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(
            ErrorCode::InternalError,
            anyhow::Error::from_boxed(error.into()),
        )
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// Adds a hint to errors with this code that have none.
    pub(crate) fn hint_for(self, code: ErrorCode, hint: &str) -> Self {
        if self.code == code && self.hint.is_none() {
            self.hint(hint)
        } else {
            self
        }
    }

    pub(crate) fn exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// For `run`, `exec` and `sh`, where 1 may be the exit code of the command.
    pub(crate) fn into_boxwood_failure(self) -> Self {
        if self.exit == EXIT_ERROR {
            self.exit(EXIT_BOXWOOD)
        } else {
            self
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.exit
    }

    /// Returns true if the reader of stdout is gone, so that there is nothing to report.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        // Broken connections to a daemon or a box are errors of other types, and are reported.
        let error = self.error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Prints the report on stderr.
    pub(crate) fn print(&self, format: OutputFormat) {
        // If stderr is closed too, only the exit code remains.
        let _ = io::stderr()
            .lock()
            .write_all(self.report(format).as_bytes());
    }

    /// The text for stderr, with its last newline.
    pub(crate) fn report(&self, format: OutputFormat) -> String {
        match format {
            OutputFormat::Json => self.report_json(),
            OutputFormat::Table => self.report_text(),
        }
    }

    fn report_text(&self) -> String {
        let mut text = format!("error: {}\n", indented(&self.error.to_string()));
        let mut last = self.error.to_string();
        for cause in self.error.chain().skip(1) {
            let cause = cause.to_string();
            // Some libraries repeat their cause's text in their own.
            if !last.ends_with(&cause) {
                let _ = writeln!(text, "  caused by: {}", indented(&cause));
            }
            last = cause;
        }
        if let Some(phase) = self.phase {
            let _ = writeln!(text, "phase: {phase}");
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "hint: {}", indented(hint));
        }
        text
    }

    fn report_json(&self) -> String {
        let error = ErrorDetail {
            code: self.code,
            message: self.to_string(),
            hint: self.hint.clone(),
        };
        let body = McpErrorBody {
            error: McpErrorDetail {
                error,
                phase: self.phase,
            },
        };
        let json = serde_json::to_string(&body).unwrap_or_else(|_| "{}".to_owned());
        format!("{}\n", printable_json(&json))
    }
}

/// Escaped text. Lines after the first are indented, so that none looks like another part of the report.
fn indented(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(printable_line).collect();
    lines.join("\n    ")
}

/// The error and its causes, without the hint.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::BadUrl { .. } | ClientError::BadToken => EXIT_USAGE,
            _ => EXIT_ERROR,
        };
        let hint = command_hint(error.code())
            .map(str::to_owned)
            .or_else(|| error.hint());
        let phase = match &error {
            ClientError::Refused { phase, .. } => *phase,
            _ => None,
        };
        let failure = Self::new(error.code(), error).maybe_hint(hint).exit(exit);
        Self { phase, ..failure }
    }
}

/// Hints that name commands, where the daemon's own hints name headers.
fn command_hint(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::SessionNotFound => Some("`boxwood ls` shows the sessions"),
        ErrorCode::Unauthorized => Some(
            "set `BOXWOOD_TOKEN` to a token that the daemon's user made with `boxwood token create NAME`",
        ),
        ErrorCode::ManagedProcessNotFound => Some("`boxwood ps SESSION` shows its processes"),
        _ => None,
    }
}

/// Writing to stdout failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::local("cannot write the output", error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let exit = match &error {
            ConfigError::Flag { .. } => EXIT_USAGE,
            _ => EXIT_ERROR,
        };
        Self::new(ErrorCode::ValidationError, error).exit(exit)
    }
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        Self::new(ErrorCode::ValidationError, error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let hint = error.hint();
        Self::new(ErrorCode::InternalError, error).maybe_hint(hint)
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let hint = denial.hint();
        Self::new(denial.code(), denial).maybe_hint(hint)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let hint = error.hint();
        Self::new(error.code(), error).maybe_hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_the_error_and_the_hint_comes_last() {
        let failure = Failure::local(
            "`x` could not be read",
            io::Error::new(io::ErrorKind::NotFound, "no such file"),
        )
        .hint("look elsewhere");
        assert_eq!(
            failure.report(OutputFormat::Table),
            "error: `x` could not be read\n  caused by: no such file\nhint: look elsewhere\n"
        );
    }

    #[test]
    fn escape_sequences_in_errors_do_not_reach_the_terminal() {
        let failure = Failure::usage("session `\u{1b}[2J` not found");
        assert_eq!(
            failure.report(OutputFormat::Table),
            "error: session `\\u{1b}[2J` not found\n"
        );
    }

    #[test]
    fn an_error_of_several_lines_keeps_them() {
        let failure = Failure::usage("not valid TOML: at line 1\n1 | x =\nhint: \u{1b}[2J\n");
        assert_eq!(
            failure.report(OutputFormat::Table),
            "error: not valid TOML: at line 1\n    1 | x =\n    hint: \\u{1b}[2J\n"
        );
    }

    #[test]
    fn only_a_closed_stdout_is_not_reported() {
        let broken_pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::from(broken_pipe()).is_broken_pipe());
        let source = broken_pipe();
        assert!(!Failure::from(ServeError::Accept { source }).is_broken_pipe());
    }

    #[test]
    fn a_missing_token_is_reported_with_the_variable_to_set() {
        let refused = ClientError::Refused {
            status: 401,
            code: ErrorCode::Unauthorized,
            message: "a token is needed".to_owned(),
            hint: Some("send it as `Authorization: Bearer …`".to_owned()),
            phase: None,
        };
        let text = Failure::from(refused).report(OutputFormat::Table);
        assert!(text.contains("hint: set `BOXWOOD_TOKEN`"), "{text}");
    }

    #[test]
    fn json_errors_have_the_shape_of_the_api() {
        assert_eq!(
            Failure::usage("no").report(OutputFormat::Json),
            "{\"error\":{\"code\":\"validation_error\",\"message\":\"no\"}}\n"
        );
    }
}
