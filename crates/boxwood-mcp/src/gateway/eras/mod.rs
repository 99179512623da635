//! Clients of the stateless era before servers of every era, and all servers as one.

mod bridged;
mod client;
mod hidden;
mod house;
mod listening;
mod passed;
mod peer;
mod questions;
mod together;
mod translated;

use self::client::Client;
use self::house::Village;
use self::peer::Knows;
