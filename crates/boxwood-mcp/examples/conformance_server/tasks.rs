//! Tools whose calls become tasks, for clients that support tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateTaskResult, InputRequest, InputRequiredResult,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use serde_json::{Value, json};

use crate::rounds::{content, form, response, who_are_you};
use crate::server::{Context, Fixture, model};
use crate::tools::{argument, says};

/// Refused for clients that do not support tasks.
const ONLY_AS_TASKS: [&str; 4] = [
    "failing_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

type Done = Result<CallToolResult, TaskExit>;

/// `None` for tools of other modules.
pub(crate) async fn call(
    fixture: &Fixture,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let name = request.name.as_ref();
    let follows = context.client_capabilities();
    let follows = follows.is_some_and(|offers| offers.supports_tasks());
    if ONLY_AS_TASKS.contains(&name) && !follows {
        let needed = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(needed));
    }
    let text = |key: &str| {
        let given = argument(request, key).and_then(Value::as_str);
        given.unwrap_or("nothing").to_owned()
    };
    let answer: CallToolResponse = match name {
        "greet" => says(format!("Hello, {}!", text("name"))).into(),
        "slow_compute" => {
            let seconds = argument(request, "seconds").and_then(Value::as_f64);
            // Limited, so that a wrong argument cannot block the suite.
            let time = Duration::from_secs_f64(seconds.unwrap_or(1.0).clamp(0.0, 60.0));
            let said = format!("computed {} slowly", text("label"));
            if follows {
                spawn(fixture, move |task| compute(task, time, said))
            } else {
                tokio::time::sleep(time).await;
                says(said).into()
            }
        }
        "failing_job" => spawn(fixture, |_| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let words = ContentBlock::text("this job fails, as it should");
            Ok(CallToolResult::error(vec![words]))
        }),
        "protocol_error_job" => {
            let broken = || ErrorData::internal_error("this job breaks, as it should", None);
            if !follows {
                return Err(broken());
            }
            spawn(fixture, move |_| async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Err(TaskExit::Error(broken()))
            })
        }
        "confirm_delete" => {
            let file = text("filename");
            let question = model(form(&format!("Delete {file}?"), "confirm", "boolean"))?;
            spawn(fixture, move |task| confirm(task, file, question))
        }
        "multi_input" => {
            let first = model(form("The first value?", "value", "string"))?;
            let second = model(form("The second value?", "value", "string"))?;
            spawn(fixture, move |task| gather(task, first, second))
        }
        "test_tool_with_task" => {
            let Some(given) = response(request.input_responses.as_ref(), "user_name") else {
                let needed = model(json!({"user_name": who_are_you()}))?;
                return Ok(Some(InputRequiredResult::new(Some(needed), None).into()));
            };
            let said = format!("Hello, {}! (async)", content(given, "name"));
            spawn(fixture, move |task| {
                compute(task, Duration::from_millis(200), said)
            })
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn spawn<W>(fixture: &Fixture, work: impl FnOnce(TaskContext) -> W) -> CallToolResponse
where
    W: Future<Output = Done> + Send + 'static,
{
    let task = fixture
        .tasks
        .spawn(TaskOptions::default(), |task| Box::pin(work(task)));
    CreateTaskResult::new(task).into()
}

async fn compute(task: TaskContext, time: Duration, said: String) -> Done {
    tokio::select! {
        () = task.cancelled() => Err(TaskExit::Cancelled),
        () = tokio::time::sleep(time) => Ok(says(said)),
    }
}

async fn confirm(task: TaskContext, file: String, question: InputRequest) -> Done {
    let answer = task.request_input("confirm", question).await?;
    let agreed = answer.pointer("/content/confirm").and_then(Value::as_bool);
    let fate = if agreed == Some(true) {
        "deleted"
    } else {
        "kept"
    };
    Ok(says(format!("{file} is {fate}")))
}

/// Both requests are pending at the same time and can be answered in any order.
async fn gather(task: TaskContext, first: InputRequest, second: InputRequest) -> Done {
    let first = task.request_input("first", first);
    let second = task.request_input("second", second);
    let (first, second) = tokio::join!(first, second);
    let value = |answer: Value| {
        answer
            .pointer("/content/value")
            .cloned()
            .unwrap_or_default()
    };
    let (first, second) = (value(first?), value(second?));
    Ok(says(format!("got {first} and {second}")))
}
