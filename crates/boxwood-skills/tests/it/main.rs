//! The store from outside.

mod archives;
mod concurrency;
mod fixture;
mod golden;
mod links;
mod rewriting;
mod skills;
mod zip_maker;
