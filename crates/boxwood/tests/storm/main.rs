//! Kills daemons at random moments. Sessions, clients and commands must not be affected, and nothing may leak.
//!
//! `BOXWOOD_STORM_KILLS` (10; long form 200) is the number of kills, `BOXWOOD_STORM_SESSIONS` (20; 50) the number of sessions,
//! and `BOXWOOD_STORM_SEED` the seed of the random numbers. The tests run one at a time.
#![forbid(unsafe_code)]

mod ask;
mod clock;
mod dead_init;
mod full_disk;
mod instance;
mod kills;
mod ledger;
mod leftovers;
mod live;
mod load;
mod random;
mod relay;
mod storm;
mod ticker;
