//! The gateway as clients of the era with sessions see it, before servers that speak over pipes.

mod calls;
mod client;
mod house;
mod peer;
mod questions;
mod sessions;
mod sharing;
mod streams;

use self::client::Client;
use self::house::Small;
