//! The eight tools. All of them run in a box.

mod activate;
pub(crate) mod arguments;
mod context;
mod edit;
mod exec;
mod glob;
mod grep;
mod read;
mod register_skill;
pub mod schemas;
mod skill_edit;
mod write;

use std::time::Duration;

use boxwood_api::{ErrorCode, ToolAnswer, ToolCall};
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::error::ToolError;
use crate::progress::Progress;
use crate::state;
use arguments::{Args, ArgumentError};
use context::CallContext;

/// Upper limit of the duration of a call.
const MAX_CALL_DURATION: Duration = Duration::from_hours(24);

/// The result of a call, and an error to record.
pub(crate) struct Done {
    pub(crate) answer: ToolAnswer,
    pub(crate) failure: Option<ToolError>,
}

/// Calls a tool. Ends within the timeout of the tool and that for starting a box, even if the runtime hangs.
pub(crate) async fn call(
    agent: &Agent,
    name: &str,
    call: &ToolCall,
    progress: &dyn Progress,
) -> Result<Done, ToolError> {
    let Some(boxes) = agent.boxes() else {
        return Err(state::disabled().into());
    };
    let args = arguments::check(name, &call.arguments)?;
    let scope = agent.scope(&call.query)?;
    let longest = longest(agent, &args);
    let run = Box::pin(async {
        // These may not need a box, but are refused without one like the others.
        if matches!(args, Args::Activate(_) | Args::Write(_) | Args::Edit(_))
            && let Some(unavailable) = agent.current_state().await.unavailable
        {
            return Err(unavailable.into());
        }
        let context =
            CallContext::prepare(agent, boxes.as_ref(), &call.query, scope, progress).await?;
        run(&context, args).await
    });
    tokio::time::timeout(longest, run)
        .await
        .unwrap_or_else(|_| Err(ToolError::late(longest)))
}

async fn run(context: &CallContext<'_>, args: Args) -> Result<Done, ToolError> {
    let result = match args {
        Args::Exec(args) => return exec::run(context, args).await,
        Args::Read(args) => read::run(context, args).await?,
        Args::Write(args) => write::run(context, args).await?,
        Args::Edit(args) => edit::run(context, args).await?,
        Args::Glob(args) => glob::run(context, args).await?,
        Args::Grep(args) => grep::run(context, args).await?,
        Args::Activate(args) => activate::run(context, args).await?,
        Args::RegisterSkill(args) => register_skill::run(context, args).await?,
    };
    Ok(Done {
        answer: context.answer(result),
        failure: None,
    })
}

/// The timeout of the tool and of the start of a box before it.
fn longest(agent: &Agent, args: &Args) -> Duration {
    let settings = agent.settings();
    if let Args::Exec(_) = args {
        // The timeout of a command is known when it has started.
        return MAX_CALL_DURATION;
    }
    Duration::from_secs(settings.tool_timeout_sec)
        .saturating_add(Duration::from_secs(settings.start_timeout_sec))
        .min(MAX_CALL_DURATION)
}

/// Returns true if the operation itself failed, rather than the session or the runtime.
fn is_about_the_operation(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ValidationError
            | ErrorCode::NotFound
            | ErrorCode::Forbidden
            | ErrorCode::PayloadTooLarge
            // Usually a full disk.
            | ErrorCode::Capacity
    )
}

impl From<ArgumentError> for ToolError {
    fn from(error: ArgumentError) -> Self {
        let code = match error {
            ArgumentError::UnknownTool { .. } => ErrorCode::NotFound,
            ArgumentError::Invalid(_) => ErrorCode::ValidationError,
        };
        Self {
            code,
            ..Self::rule(error.to_string())
        }
    }
}

fn not_done(error: impl Into<String>) -> Map<String, Value> {
    object([("ok", Value::Bool(false)), ("error", error.into().into())])
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
