//! The command as a person meets it: what it prints, and how it ends.

mod activation;
mod aftermath;
mod boxes;
mod command;
mod completion;
mod daemon;
mod errors;
mod files;
mod help;
mod help_commands;
mod help_processes;
mod help_sessions;
mod help_skills;
mod help_system;
mod host;
mod images;
mod langbot;
mod processes;
mod seed;
mod sessions;
mod shutdown_modes;
mod skills;
mod skills_in_boxes;
mod takeover;
mod tokens;
mod warm_and_frozen;
