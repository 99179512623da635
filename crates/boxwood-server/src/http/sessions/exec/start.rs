//! Starts a command, or attaches to a running one, for both transports.

use boxwood_api::{ExecOutput, SessionId, SpecRequest};
use boxwood_session::{Resume, Sessions, Since, Stdio, StreamedExec, TerminalSize};

use crate::http::error::ApiResult;
use crate::http::params::InSession;
use crate::http::{App, sessions, with_timeout};

/// How to start a command, besides its spec.
#[derive(Default)]
pub(crate) struct StartOptions {
    /// Replaces the command of the spec.
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) terminal: Option<TerminalSize>,
    /// The client sends stdin itself.
    pub(crate) stdin: bool,
    pub(crate) resumable: bool,
}

pub(crate) struct Started {
    pub(crate) exec: StreamedExec,
    pub(crate) first_frame: ExecOutput,
    /// The complete stdin, if it was part of the request.
    pub(crate) request_stdin: Option<String>,
    /// Input is acknowledged then.
    pub(crate) resumable: bool,
}

impl Started {
    pub(crate) async fn start(
        app: &App,
        InSession { id, sessions }: InSession,
        spec: SpecRequest,
        options: StartOptions,
    ) -> ApiResult<Self> {
        let admission = match &options.argv {
            Some(_) => sessions::admit(app, id.clone(), spec).await?,
            None => sessions::admit_command(app, id.clone(), spec).await?,
        };
        let request_stdin = admission.exec.stdin().map(str::to_owned);
        let streams = match options.terminal {
            Some(size) => Stdio::Terminal(size),
            None if options.stdin || request_stdin.is_some() => Stdio::Pipes,
            None => Stdio::Output,
        };
        let notices = admission.exec.notices().to_vec();
        let timeout = admission.exec.timeout();
        let resume = if options.resumable {
            Resume::Allowed
        } else {
            Resume::Never
        };
        let exec = with_timeout(app.start_timeout, async {
            match options.argv {
                Some(argv) => sessions.stream_argv(admission, argv, streams, resume).await,
                None => sessions.stream(admission, streams, resume).await,
            }
        })
        .await?;
        let first_frame = ExecOutput::Started {
            session_id: id,
            exec_id: exec.exec_id(),
            notices,
            stdin: exec.stdin_accepted().filter(|_| options.resumable),
            timeout_sec: Some(timeout.as_secs()),
        };
        Ok(Self {
            exec,
            first_frame,
            request_stdin: request_stdin.filter(|_| !options.stdin && options.terminal.is_none()),
            resumable: options.resumable,
        })
    }

    /// Attaches to a command that was started with `resumable`.
    pub(crate) fn resume(
        sessions: &Sessions,
        session_id: SessionId,
        exec_id: u64,
        (stdout, stderr): (Since, Since),
    ) -> ApiResult<Self> {
        let exec = sessions.resume_exec(&session_id, exec_id, stdout, stderr)?;
        let first_frame = ExecOutput::Resumed {
            session_id,
            exec_id,
            stdout: exec.stdout_offset(),
            stderr: exec.stderr_offset(),
            stdin: exec.stdin_accepted(),
        };
        Ok(Self {
            exec,
            first_frame,
            request_stdin: None,
            resumable: true,
        })
    }
}
