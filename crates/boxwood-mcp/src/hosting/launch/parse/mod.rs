//! Parses the command line of a server: which launcher it uses, with which options and packages.

pub(super) mod command;
mod npm;
mod options;
pub(super) mod package;
mod uv;

pub(super) use npm::NodeTool;
pub(super) use uv::{ProjectRun, PythonTool, Target};
