//! Judgement, seen from outside: requests in, admissions and denials out.

mod admission;
mod backends;
mod configuration;
mod drift;
mod joining;
mod label;
mod mounts;
mod own;
mod place;
mod profiles;
mod properties;
mod records;
mod twins;
mod wish;
