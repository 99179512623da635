//! Server definitions: storage, import from client configurations, validation.

pub(crate) mod client_config;
pub(crate) mod import;
pub(crate) mod secret_args;
pub(crate) mod store;
pub(crate) mod tool_filter;
pub(crate) mod validate;
