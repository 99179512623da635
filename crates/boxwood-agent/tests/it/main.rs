//! The agent's own rules, and its logic over boxes that are only in memory. What real boxes do is tested
//! where they are.

mod activation;
mod arguments;
mod config;
mod deadlines;
mod default_workspace;
mod double;
mod environment;
mod error_ring;
mod errors;
mod exec;
mod file_tools;
mod guidance;
mod paths;
mod saved_output;
mod schemas;
mod specs;
mod states;
mod template;
mod truncate;
