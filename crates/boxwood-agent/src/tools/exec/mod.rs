//! `exec`: a command in the conversation's box.

mod outcome;
mod python_env;
mod rules;

use std::time::Duration;

use boxwood_api::{ExecExit, ExecStatus, Reason, SessionId, SpecRequest};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::arguments::ExecArgs;
use super::context::CallContext;
use super::{Done, object};
use crate::boxes::{Begun, BoxesError, Command, Running};
use crate::error::ToolError;
use crate::output::capture::{CaptureBudget, OutputCapture};
use crate::output::saved;
use crate::progress::{Progress, Stream};

/// The runtime ends a command at its timeout. After this additional time the call fails.
const GRACE: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &CallContext<'_>, args: ExecArgs) -> Result<Done, ToolError> {
    let settings = context.agent.settings();
    let Begun {
        session_id,
        backend,
        notices,
        timeout,
        mut command,
    } = context.before_start(Box::pin(begin(context, args))).await?;
    context.progress.step("the command runs");
    let mut captured = CapturedOutput::new(
        settings.output_limit_chars,
        &context.agent.inner.capture_budget,
    );
    let began = Instant::now();
    let max_duration = timeout.saturating_add(GRACE);
    let following = follow(command.as_mut(), &mut captured, context.progress);
    let ended = tokio::time::timeout(max_duration, following).await;
    // Kills the command if it is still running.
    drop(command);
    let unknown = |status, reason| ExecExit {
        exit_code: None,
        status,
        reason,
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        notices: Vec::new(),
    };
    let (exit, lost) = match ended {
        Ok(Ok(exit)) => (exit, None),
        // It did not end after its timeout.
        Err(_) => (unknown(ExecStatus::TimedOut, Some(Reason::Timeout)), None),
        // The connection or the command was lost.
        Ok(Err(error)) => {
            let error = context.agent.refusal(error).await;
            if captured.is_empty() {
                return Err(error);
            }
            // The output so far is returned, although the exit status is unknown.
            (unknown(ExecStatus::Completed, None), Some(error))
        }
    };
    let mut result = object([
        ("session_id", session_id.to_string().into()),
        ("backend", backend.into()),
    ]);
    let mut all_notices = context.notices();
    all_notices.extend(notices);
    all_notices.extend(exit.notices.iter().cloned());
    all_notices.extend(exit.reason.as_ref().and_then(outcome::reason_notice));
    describe(&mut result, &exit, lost.as_ref());
    all_notices.extend(show(&mut result, context, &session_id, captured).await);
    if !all_notices.is_empty() {
        result.insert("notices".to_owned(), all_notices.into());
    }
    let over_quota = || outcome::over_quota(&exit).map(ToolError::rule);
    Ok(Done {
        answer: context.answer(result),
        failure: lost.or_else(over_quota),
    })
}

/// Checks the rules and starts the command.
async fn begin(context: &CallContext<'_>, args: ExecArgs) -> Result<Begun, ToolError> {
    let workdir = rules::workdir(context, &args.workdir)?;
    let skill = rules::target(context, workdir.skill, &args.command)?;
    if args.command.trim().is_empty() {
        return Err(ToolError::rule("command must not be empty"));
    }
    tracing::debug!(
        session = %context.session,
        command = cut(&args.command, 400),
        workdir = workdir.path,
        env_keys = ?args.env.keys().collect::<Vec<_>>(),
        description = args.description,
        "an agent runs a command"
    );
    let command = match skill {
        Some(name) => python_env::prepared(context, &name, args.command).await?,
        None => args.command,
    };
    let spec = SpecRequest {
        cmd: command,
        workdir: Some(workdir.path),
        timeout_sec: args.timeout_sec,
        env: args.env,
        ..context.spec()
    };
    context.progress.step("starting the command");
    match context.boxes.exec(spec).await {
        Ok(begun) => Ok(begun),
        Err(error) => Err(context.agent.refusal(error).await),
    }
}

/// Adds the status and the exit code of the command to the result.
fn describe(result: &mut Map<String, Value>, exit: &ExecExit, lost: Option<&ToolError>) {
    let status = match (lost, exit.status) {
        (Some(_), _) => "failed",
        (None, ExecStatus::Completed) => "completed",
        (None, ExecStatus::TimedOut) => "timed_out",
    };
    let ok = status == "completed" && exit.exit_code == Some(0);
    result.extend(object([
        ("status", status.into()),
        ("ok", ok.into()),
        ("exit_code", exit.exit_code.into()),
        ("duration_ms", exit.duration_ms.into()),
    ]));
    let reason = exit.reason.as_ref();
    put(
        result,
        "reason",
        reason.map(|reason| json!(reason)["kind"].take()),
    );
    put(
        result,
        "error",
        lost.map(|error| error.message.clone().into()),
    );
}

/// Adds the output to the result and saves cut streams. Returns notices for the model.
async fn show(
    result: &mut Map<String, Value>,
    context: &CallContext<'_>,
    session: &SessionId,
    captured: CapturedOutput,
) -> Vec<String> {
    let (stdout, whole_stdout) = captured.stdout.finish();
    let (stderr, whole_stderr) = captured.stderr.finish();
    let streams = [
        (Stream::Stdout, whole_stdout),
        (Stream::Stderr, whole_stderr),
    ];
    let saved_paths = saved::save(
        context.boxes,
        session,
        &context.agent.inner.saved_numbers,
        streams,
    )
    .await;
    tracing::debug!(
        %session,
        stdout = cut(&stdout.text, 200),
        stderr = cut(&stderr.text, 200),
        "an agent's command ended"
    );
    result.extend(object([
        ("stdout", stdout.text.into()),
        ("stderr", stderr.text.into()),
        ("stdout_truncated", stdout.truncated.into()),
        ("stderr_truncated", stderr.truncated.into()),
    ]));
    put(result, "stdout_file", saved_paths.stdout.map(Value::from));
    put(result, "stderr_file", saved_paths.stderr.map(Value::from));
    saved_paths.notices
}

/// The first characters, for a log.
fn cut(text: &str, max_chars: usize) -> &str {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

fn put(result: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        result.insert(name.to_owned(), value);
    }
}

/// The output of the command so far.
struct CapturedOutput {
    stdout: OutputCapture,
    stderr: OutputCapture,
}

impl CapturedOutput {
    fn new(limit: usize, budget: &CaptureBudget) -> Self {
        Self {
            stdout: OutputCapture::new(limit, budget),
            stderr: OutputCapture::new(limit, budget),
        }
    }

    fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

async fn follow(
    command: &mut dyn Command,
    captured: &mut CapturedOutput,
    progress: &dyn Progress,
) -> Result<ExecExit, BoxesError> {
    loop {
        let (stream, text) = match command.next().await? {
            Running::Stdout(bytes) => (Stream::Stdout, captured.stdout.take(&bytes)),
            Running::Stderr(bytes) => (Stream::Stderr, captured.stderr.take(&bytes)),
            Running::Exited(exit) => return Ok(exit),
        };
        if !text.is_empty() {
            progress.output(stream, &text);
        }
    }
}
