//! The agent's tools, served over the Model Context Protocol.
#![forbid(unsafe_code)]
