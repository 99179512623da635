//! `--help` texts and completion scripts.

mod commands;
mod completion;
mod overview;
mod processes;
mod sessions;
mod skills;
mod system;
mod tools;
