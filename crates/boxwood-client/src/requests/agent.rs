//! Agent tools of the daemon.

use boxwood_api::{AgentStatus, ToolAnswer, ToolCall, ToolList};

use crate::http::target::Target;
use crate::{Client, Result};

impl Client {
    /// The available tools, or why there are none.
    pub async fn tools(&self) -> Result<ToolList> {
        self.get(&Target::new("/v1/agent/tools")).await
    }

    /// Waits for the result. Dropping the future cancels the call.
    pub async fn call_tool(&self, name: &str, call: &ToolCall) -> Result<ToolAnswer> {
        let target = Target::new("/v1/agent/tools").segment(name);
        self.post(&target, call).await
    }

    pub async fn agent_status(&self) -> Result<AgentStatus> {
        self.get(&Target::new("/v1/agent/status")).await
    }
}
