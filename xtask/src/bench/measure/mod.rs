//! Measurements: samples in turns, memory of processes, and the table of results.

pub(super) mod procfs;
pub(super) mod sample;
pub(super) mod table;
pub(super) mod turns;
