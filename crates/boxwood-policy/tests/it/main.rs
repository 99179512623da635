//! Judgement, seen from outside: requests in, admissions and denials out.

mod admission;
mod backends;
mod configuration;
mod daemon_directories;
mod drift;
mod joining;
mod label;
mod mounts;
mod own;
mod prewarmed;
mod profiles;
mod properties;
mod records;
mod requests;
