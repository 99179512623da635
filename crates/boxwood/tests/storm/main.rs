//! Daemons that are killed at any moment, with sessions, clients and load that must not notice.
//!
//! `BOXWOOD_STORM_KILLS` (10; long form 200) says how often, `BOXWOOD_STORM_SESSIONS` (20; 50) how many sessions live through
//! it, and `BOXWOOD_STORM_SEED` which storm it is. Each test has the machine for itself.
#![forbid(unsafe_code)]

mod aftermath;
mod ask;
mod chance;
mod clock;
mod dead_init;
mod full_disk;
mod house;
mod kills;
mod ledger;
mod live;
mod load;
mod relay;
mod storm;
mod ticker;
