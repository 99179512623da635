//! What an agent may ask of boxes.
//!
//! Comes in: a tool's name, what the model wrote, and the conversation it is about. Goes out: a result
//! that a model can read. Never here: isolation, judgement of mounts and limits, HTTP, MCP.
#![forbid(unsafe_code)]

mod boxes;

pub use boxes::{Answer, Begun, Boxes, BoxesError, Command, Running};
