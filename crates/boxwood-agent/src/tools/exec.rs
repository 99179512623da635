//! `exec`: a command in the conversation's box.

use std::time::Duration;

use boxwood_api::{ExecStatus, Reason, SpecRequest};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::scene::Scene;
use super::{Done, object, skill_environment};
use crate::arguments::ExecArgs;
use crate::boxes::{Begun, BoxesError, Command, Running};
use crate::collected::Collected;
use crate::config::AgentSettings;
use crate::error::ToolError;
use crate::kept_output;
use crate::paths::{self, PathError, Place, SkillAccess};
use crate::progress::{Progress, Stream};

/// The runtime ends a command at its timeout; so much later nobody believes in that any more.
const GRACE: Duration = Duration::from_secs(10);

/// What a call may take after its command's timeout.
pub(super) const AFTERWARDS: Duration = GRACE.saturating_add(kept_output::LONGEST);

pub(super) fn timeout_sec(settings: &AgentSettings, args: &ExecArgs) -> u64 {
    args.timeout_sec.unwrap_or(settings.tool_timeout_sec)
}

pub(super) async fn run(scene: &Scene<'_>, args: ExecArgs) -> Result<Done, ToolError> {
    let settings = scene.agent.settings();
    let timeout = timeout_sec(settings, &args);
    let workdir = workdir(scene, &args.workdir)?;
    let skill = target(scene, workdir.skill, &args.command)?;
    if args.command.trim().is_empty() {
        return Err(ToolError::rule("command must not be empty"));
    }
    let command = match skill {
        Some(name) => skill_environment::prepared(scene, &name, args.command).await?,
        None => args.command,
    };
    let spec = SpecRequest {
        cmd: command,
        workdir: Some(workdir.path),
        timeout_sec: Some(timeout),
        env: args.env,
        ..scene.spec()
    };
    scene.progress.step("starting the command");
    tracing::debug!(
        session = %scene.session,
        command = cut(&spec.cmd, 400),
        workdir = spec.workdir,
        env_keys = ?spec.env.keys().collect::<Vec<_>>(),
        description = args.description,
        "an agent runs a command"
    );
    let Begun {
        session_id,
        backend,
        notices,
        mut command,
    } = match tokio::time::timeout_at(scene.start_by, scene.boxes.exec(spec)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(error)) => return Err(scene.agent.refusal(error).await),
        Err(_) => {
            return Err(ToolError::late(Duration::from_secs(
                settings.start_timeout_sec,
            )));
        }
    };
    scene.progress.step("the command runs");
    let mut followed = Followed::new(settings.output_limit_chars);
    let began = Instant::now();
    let longest = Duration::from_secs(timeout).saturating_add(GRACE);
    let following = follow(command.as_mut(), &mut followed, scene.progress);
    let end = match tokio::time::timeout(longest, following).await {
        Ok(Ok(exit)) => End::Exited(exit),
        Ok(Err(error)) => End::Lost(error),
        Err(_) => End::Late,
    };
    // What has not ended by now is killed.
    drop(command);
    let taken = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (outcome, failure) = match end {
        End::Exited(exit) => (Outcome::exited(&exit), None),
        End::Late => (Outcome::late(taken), None),
        End::Lost(error) => {
            let error = scene.agent.refusal(error).await;
            if followed.is_empty() {
                return Err(error);
            }
            // What the command has already said is worth having, though nobody knows its end.
            (Outcome::lost(taken, &error), Some(error))
        }
    };
    let (stdout, whole_stdout) = followed.stdout.finish();
    let (stderr, whole_stderr) = followed.stderr.finish();
    let streams = [
        (Stream::Stdout, whole_stdout),
        (Stream::Stderr, whole_stderr),
    ];
    let kept = kept_output::keep(scene.boxes, &session_id, &scene.agent.inner.kept, streams).await;
    tracing::debug!(
        session = %session_id,
        status = outcome.status,
        exit_code = outcome.exit_code,
        stdout = cut(&stdout.text, 200),
        stderr = cut(&stderr.text, 200),
        "an agent's command ended"
    );
    let mut result = object([
        ("session_id", session_id.to_string().into()),
        ("backend", backend.into()),
        ("status", outcome.status.into()),
        ("ok", outcome.ok().into()),
        ("exit_code", outcome.exit_code.into()),
        ("stdout", stdout.text.into()),
        ("stderr", stderr.text.into()),
        ("stdout_truncated", stdout.truncated.into()),
        ("stderr_truncated", stderr.truncated.into()),
        ("duration_ms", outcome.duration_ms.into()),
    ]);
    let mut all_notices = scene.notices();
    all_notices.extend(notices);
    all_notices.extend(outcome.notice());
    all_notices.extend(kept.notices);
    let reason = outcome.reason.as_ref().map(reason_word);
    put(&mut result, "reason", reason.map(Value::from));
    put(&mut result, "error", outcome.error.map(Value::from));
    put(&mut result, "stdout_file", kept.stdout.map(Value::from));
    put(&mut result, "stderr_file", kept.stderr.map(Value::from));
    let told = (!all_notices.is_empty()).then(|| Value::from(all_notices));
    put(&mut result, "notices", told);
    Ok(Done {
        answer: scene.answer(result),
        failure,
    })
}

/// The first characters, for a log.
fn cut(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

fn put(result: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        result.insert(name.to_owned(), value);
    }
}

struct Followed {
    stdout: Collected,
    stderr: Collected,
}

impl Followed {
    fn new(limit: usize) -> Self {
        Self {
            stdout: Collected::new(limit),
            stderr: Collected::new(limit),
        }
    }

    fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

enum End {
    Exited(boxwood_api::ExecExit),
    /// The runtime lost it.
    Lost(BoxesError),
    /// It should have ended long ago.
    Late,
}

async fn follow(
    command: &mut dyn Command,
    followed: &mut Followed,
    progress: &dyn Progress,
) -> Result<boxwood_api::ExecExit, BoxesError> {
    loop {
        let (stream, text) = match command.next().await? {
            Running::Stdout(bytes) => (Stream::Stdout, followed.stdout.take(&bytes)),
            Running::Stderr(bytes) => (Stream::Stderr, followed.stderr.take(&bytes)),
            Running::Exited(exit) => return Ok(exit),
        };
        if !text.is_empty() {
            progress.output(stream, &text);
        }
    }
}

/// How a command ended, in the words of the result.
struct Outcome {
    status: &'static str,
    exit_code: Option<i32>,
    reason: Option<Reason>,
    duration_ms: u64,
    error: Option<String>,
}

impl Outcome {
    fn exited(exit: &boxwood_api::ExecExit) -> Self {
        Self {
            status: match exit.status {
                ExecStatus::Completed => "completed",
                ExecStatus::TimedOut => "timed_out",
            },
            exit_code: exit.exit_code,
            reason: exit.reason.clone(),
            duration_ms: exit.duration_ms,
            error: None,
        }
    }

    fn late(duration_ms: u64) -> Self {
        Self {
            status: "timed_out",
            exit_code: None,
            reason: Some(Reason::Timeout),
            duration_ms,
            error: None,
        }
    }

    fn lost(duration_ms: u64, error: &ToolError) -> Self {
        Self {
            status: "failed",
            exit_code: None,
            reason: None,
            duration_ms,
            error: Some(error.message.clone()),
        }
    }

    fn ok(&self) -> bool {
        self.status == "completed" && self.exit_code == Some(0)
    }

    /// What one word does not say.
    fn notice(&self) -> Option<String> {
        Some(match self.reason.as_ref()? {
            Reason::Seccomp { syscall } => {
                format!("the system call `{syscall}` is not allowed in a box")
            }
            Reason::NetworkDenied { host } => format!("the box may not reach {host}"),
            Reason::Signal { signal } => format!("a signal ended the command: {signal}"),
            Reason::DiskQuota => {
                "the box's disk quota is used up; remove files before you write more".to_owned()
            }
            Reason::Oom => "the box's memory is used up; work on less at a time".to_owned(),
            Reason::PidsLimit => "the box has no room for more processes".to_owned(),
            Reason::Timeout | Reason::OutputLimit | Reason::BoxGone | Reason::Cancelled => {
                return None;
            }
        })
    }
}

fn reason_word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Timeout => "timeout",
        Reason::Oom => "oom",
        Reason::PidsLimit => "pids_limit",
        Reason::DiskQuota => "disk_quota",
        Reason::OutputLimit => "output_limit",
        Reason::Seccomp { .. } => "seccomp",
        Reason::NetworkDenied { .. } => "network_denied",
        Reason::Signal { .. } => "signal",
        Reason::BoxGone => "box_gone",
        Reason::Cancelled => "cancelled",
    }
}

struct Workdir {
    path: String,
    skill: Option<String>,
}

/// Anywhere in the box; in a skill's package only where that skill is active.
fn workdir(scene: &Scene<'_>, path: &str) -> Result<Workdir, ToolError> {
    match paths::resolve(path) {
        Ok(Place::Skill { name, path, .. }) => {
            scene.check_skill(&name, SkillAccess::Use)?;
            Ok(Workdir {
                path,
                skill: Some(name),
            })
        }
        Ok(Place::Workspace { path } | Place::KeptOutput { path }) => {
            Ok(Workdir { path, skill: None })
        }
        // A detour could lead into a package.
        Err(PathError::Outside) if !path.split('/').any(|name| name == "..") => Ok(Workdir {
            path: path.to_owned(),
            skill: None,
        }),
        Err(PathError::Outside) => Err(PathError::Escapes.into()),
        Err(error) => Err(error.into()),
    }
}

/// The skill in whose package the command works, if it does in any.
fn target(
    scene: &Scene<'_>,
    workdir: Option<String>,
    command: &str,
) -> Result<Option<String>, ToolError> {
    let mentioned = paths::mentioned_skills(command);
    if let Some(name) = workdir {
        if mentioned.iter().any(|other| *other != name) {
            return Err(ToolError::rule(
                "exec can reference files from only one activated skill package per call.",
            ));
        }
        return Ok(Some(name));
    }
    if mentioned.len() > 1 {
        return Err(ToolError::rule(
            "exec can target at most one activated skill package per call.",
        ));
    }
    let Some(name) = mentioned.into_iter().next() else {
        return Ok(None);
    };
    if !scene.skills.activated.contains(&name) {
        return Err(ToolError::rule(format!(
            "Skill \"{name}\" must be activated before exec can run in its package."
        ))
        .with_hint("call activate with this skill's name first"));
    }
    Ok(Some(name))
}
