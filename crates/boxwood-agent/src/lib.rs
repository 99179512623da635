//! What an agent may ask of boxes.
//!
//! Comes in: a tool's name, what the model wrote, and the conversation it is about. Goes out: a result
//! that a model can read. Never here: isolation, judgement of mounts and limits, HTTP, MCP.
#![forbid(unsafe_code)]

mod activation;
mod agent;
mod arguments;
mod boxes;
mod collected;
mod config;
mod connector;
mod default_workspace;
mod environment;
mod error;
mod guidance;
mod kept_output;
mod operator;
pub mod paths;
mod progress;
pub mod python_env;
mod realpath;
mod remote;
mod results;
mod ring;
pub mod schemas;
mod skills;
mod spec;
mod state;
pub mod template;
mod templates;
mod tools;
mod truncate;
pub mod workspace;

pub use agent::Agent;
pub use arguments::{
    ActivateArgs, Args, ArgumentError, EditArgs, ExecArgs, GlobArgs, GrepArgs, ReadArgs,
    RegisterSkillArgs, WriteArgs, check,
};
pub use boxes::{Answer, Begun, Boxes, BoxesError, Command, Content, Running};
pub use config::{AgentSettings, BUILT_IN_PROFILES, BoxSection, ConfigError};
pub use connector::{
    Availability, ChildSettings, ConnectError, ConnectedAgent, Connector, Outage, Place,
    Surroundings, Timing, connect, runtime_endpoint,
};
pub use default_workspace::WorkspaceError;
pub use environment::PLATFORM_GUARD;
pub use error::ToolError;
pub use guidance::guidance;
pub use progress::{NoProgress, Progress, Stream};
pub use remote::{Deadlines, Remote};
pub use ring::{ErrorRing, RECENT_ERRORS};
pub use schemas::tools;
pub use template::{Template, TemplateError};
pub use truncate::{Truncated, truncate};
