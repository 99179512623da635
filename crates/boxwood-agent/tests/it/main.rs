//! The agent's own rules, and its logic over boxes that are only in memory. What real boxes do is tested
//! where they are.

mod activation;
mod arguments;
mod config;
mod deadlines;
mod default_workspace;
mod double;
mod environment;
mod errors;
mod exec;
mod file_tools;
mod guidance;
mod kept_output;
mod paths;
mod ring;
mod schemas;
mod specs;
mod states;
mod template;
mod truncate;
mod workspace;
