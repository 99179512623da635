//! The daemon from outside: a real server, real connections, and a backend without isolation.

mod agent;
mod api;
mod auth;
mod backends;
mod execs;
mod file_tools;
mod files;
mod hosted_sessions;
mod hostile;
mod images;
mod langbot_box;
mod lifecycle;
mod live;
mod load;
mod mcp_gateway;
mod mcp_servers;
mod openapi;
mod processes;
mod relay;
mod resuming;
mod sessions;
mod skill_archives;
mod skill_files;
mod skills;
