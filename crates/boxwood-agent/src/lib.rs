//! Agent tools that run in boxes.
//!
//! A call has a tool name, the arguments from the model and the conversation. Isolation, policy, HTTP and MCP are in other crates.
#![forbid(unsafe_code)]

mod agent;
mod boxes;
mod error;
mod error_ring;
mod guidance;
mod output;
pub mod paths;
mod progress;
mod remote;
mod settings;
mod skills;
mod state;
pub mod template;
mod tools;

pub use agent::Agent;
pub use boxes::{Answer, Begun, Boxes, BoxesError, Command, Running};
pub use error::ToolError;
pub use error_ring::{ErrorRing, RECENT_ERRORS};
pub use guidance::guidance;
pub use output::{Truncated, truncate};
pub use progress::{NoProgress, Progress, Stream};
pub use remote::{Deadlines, Remote, runtime_endpoint};
pub use settings::{AgentSettings, BUILT_IN_PROFILES, BoxSection, ConfigError, PLATFORM_GUARD};
pub use template::{Template, TemplateError};
pub use tools::arguments::{
    ActivateArgs, Args, ArgumentError, EditArgs, ExecArgs, GlobArgs, GrepArgs, ReadArgs,
    RegisterSkillArgs, WriteArgs, check,
};
pub use tools::schemas::{self, tools};
