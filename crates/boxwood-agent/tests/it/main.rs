//! Tests of the agent with boxes in memory.

mod double;
mod error_ring;
mod errors;
mod guidance;
mod states;
mod template;
mod truncate;

mod settings {
    mod config;
    mod environment;
}

mod tools {
    mod activation;
    mod arguments;
    mod deadlines;
    mod exec;
    mod file_tools;
    mod paths;
    mod saved_output;
    mod schemas;
    mod specs;
}
