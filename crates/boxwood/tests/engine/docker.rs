//! Docker has a daemon of its own, which can go while boxes stay, and which others use too.

mod lost;
mod two_daemons;
