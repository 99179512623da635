//! Boxes of a daemon that is reached over its API.
//!
//! There is no permanent connection: each call finds out whether the daemon is available, and fails at once if it is not. If
//! the connection is lost during a call, idempotent requests are repeated until the call's deadline, and a running command
//! is resumed by the client.

mod boxes;
mod command;
mod endpoint;
mod failure;
mod request;

use std::time::Duration;

use boxwood_client::{Client, Endpoint, Token};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub use endpoint::runtime_endpoint;

/// How long `dispose` waits for running calls.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeouts of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Requests about the runtime.
    pub runtime: Duration,
    /// Requests about files and skills.
    pub files: Duration,
    /// Creating a box; its image may have to be pulled.
    pub start: Duration,
    /// Commands without a timeout.
    pub command: Duration,
    /// Additional time after a command's timeout, in which its end must be reported.
    pub slack: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            runtime: Duration::from_secs(15),
            files: Duration::from_mins(1),
            start: Duration::from_secs(330),
            command: Duration::from_hours(1),
            slack: Duration::from_secs(15),
        }
    }
}

/// The boxes of another daemon. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    /// Host paths have the same meaning for the daemon: it listens on a Unix socket of this machine.
    shares_filesystem: bool,
    deadlines: Deadlines,
    /// The running calls. Closed by [`Remote::dispose`].
    calls: TaskTracker,
}

impl Remote {
    /// Does not connect until the first call.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use boxwood_agent::{Agent, AgentSettings, NoProgress, Remote, runtime_endpoint};
    /// use boxwood_api::ToolCall;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let endpoint = runtime_endpoint("unix:///run/boxwood/boxwood.sock")?;
    /// let remote = Remote::new(endpoint, None);
    /// let agent = Agent::new(Arc::new(remote.clone()), AgentSettings::default());
    /// let call = ToolCall {
    ///     arguments: serde_json::from_str(r#"{"command": "echo $((6 * 7))"}"#)?,
    ///     ..ToolCall::default()
    /// };
    /// let answer = agent.call("exec", call, &NoProgress).await?;
    /// assert_eq!(answer.result["stdout"], "42\n");
    /// remote.dispose().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        Self {
            shares_filesystem: matches!(endpoint, Endpoint::Unix { .. }),
            client: Client::new(endpoint, token),
            deadlines: Deadlines::default(),
            calls: TaskTracker::new(),
        }
    }

    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// Refuses new calls, and waits up to 10 s for running ones.
    pub async fn dispose(&self) {
        self.calls.close();
        let _ = timeout(DRAIN_TIMEOUT, self.calls.wait()).await;
    }
}
