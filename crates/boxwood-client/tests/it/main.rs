//! The client against daemons that break off in the middle.

mod daemon;
mod restarts;
