//! The daemon from outside: a real server, real connections, and a backend without isolation.

mod agent;
mod api;
mod openapi;

mod commands {
    mod execs;
    mod live;
    mod processes;
    mod relay;
    mod resuming;
}

mod daemon {
    mod auth;
    mod backends;
    mod hostile;
    mod lifecycle;
    pub(crate) mod load;
}

mod mcp {
    mod gateway;
    mod hosted_sessions;
    pub(crate) mod servers;
}

mod sessions {
    mod file_tools;
    mod files;
    mod images;
    mod langbot_box;
    mod lifetime;
}

mod skills {
    mod archives;
    mod files;
    pub(crate) mod packages;
}
