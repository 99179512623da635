//! Launch plans and install scripts, without a box.

mod keys;
mod plans;
mod properties;
mod scripts;
