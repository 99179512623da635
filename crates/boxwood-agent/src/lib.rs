//! Agent tools that run in boxes.
//!
//! A call has a tool name, the arguments from the model and the conversation. Isolation, policy, HTTP and MCP are in other crates.
#![forbid(unsafe_code)]

mod activation;
mod agent;
mod arguments;
mod boxes;
mod config;
mod connector;
mod default_workspace;
mod environment;
mod error;
mod error_ring;
mod guidance;
mod operator;
mod output_capture;
pub mod paths;
mod progress;
pub mod python_env;
mod realpath;
mod remote;
mod results;
mod saved_output;
pub mod schemas;
mod skills;
mod spec;
mod state;
pub mod template;
mod templates;
mod tools;
mod truncate;

pub use agent::Agent;
pub use arguments::{
    ActivateArgs, Args, ArgumentError, EditArgs, ExecArgs, GlobArgs, GrepArgs, ReadArgs,
    RegisterSkillArgs, WriteArgs, check,
};
pub use boxes::{Answer, Begun, Boxes, BoxesError, Command, Content, Running};
pub use config::{AgentSettings, BUILT_IN_PROFILES, BoxSection, ConfigError};
pub use connector::{
    Availability, ChildSettings, ConnectError, ConnectOptions, ConnectedAgent, Connector, Outage,
    RuntimeLocation, Timing, connect, runtime_endpoint,
};
pub use default_workspace::WorkspaceError;
pub use environment::PLATFORM_GUARD;
pub use error::ToolError;
pub use error_ring::{ErrorRing, RECENT_ERRORS};
pub use guidance::guidance;
pub use progress::{NoProgress, Progress, Stream};
pub use remote::{Deadlines, Remote};
pub use schemas::tools;
pub use template::{Template, TemplateError};
pub use truncate::{Truncated, truncate};
