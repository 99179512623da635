//! Types of the HTTP API: ids, requests, responses and error codes.
//!
//! No I/O and no async code.
#![forbid(unsafe_code)]

mod agent;
mod daemon;
mod error;
mod exec;
mod files;
mod id;
mod image;
mod isolation;
mod mcp;
mod parse;
mod process;
mod session;
mod skill;
mod spec;

pub use agent::*;
pub use daemon::*;
pub use error::*;
pub use exec::stream::*;
pub use exec::*;
pub use files::*;
pub use id::{ProcessId, SessionId};
pub use image::name::{ImageName, ImageNameError};
pub use image::*;
pub use isolation::*;
pub use mcp::edit::*;
pub use mcp::*;
pub use parse::rules::{FieldError, check_arguments, check_box_path};
pub use parse::{BodyError, from_json};
pub use process::*;
pub use session::*;
pub use skill::*;
pub use spec::rules::{MAX_COMMAND_BYTES, MAX_MOUNTS, MAX_SKILLS};
pub use spec::*;
