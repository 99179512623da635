//! Docker: its daemon can stop while containers keep running, and other programs use it too.

mod lost;
mod two_daemons;
