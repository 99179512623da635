//! What an agent may ask of boxes.
//!
//! Comes in: a tool's name, what the model wrote, and the conversation it is about. Goes out: a result
//! that a model can read. Never here: isolation, judgement of mounts and limits, HTTP, MCP.
#![forbid(unsafe_code)]

mod arguments;
mod boxes;
mod config;
mod environment;
mod guidance;
pub mod paths;
mod realpath;
mod results;
mod ring;
pub mod schemas;
pub mod template;
mod truncate;

pub use arguments::{
    ActivateArgs, Args, ArgumentError, EditArgs, ExecArgs, GlobArgs, GrepArgs, ReadArgs,
    RegisterSkillArgs, WriteArgs, check,
};
pub use boxes::{Answer, Begun, Boxes, BoxesError, Command, Running};
pub use config::{AgentSettings, BUILT_IN_PROFILES, BoxSection, ConfigError};
pub use guidance::guidance;
pub use ring::{ErrorRing, RECENT_ERRORS};
pub use template::{Template, TemplateError};
pub use truncate::{Truncated, truncate};
