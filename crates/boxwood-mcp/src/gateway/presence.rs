//! Whose things are listed where all servers are, and when that is news.
//!
//! Comes in: how the servers are, looked at again and again. Goes out: whether clients should list anew. A
//! server that falls asleep, or wakes, lists what it listed before: were that news, every client would ask,
//! and the asking would wake it again.

use std::collections::BTreeMap;

use boxwood_api::McpServerName;

use super::aggregate::Aggregate;
use super::behind::How;

#[derive(Default)]
pub(crate) struct Presence {
    seen: BTreeMap<McpServerName, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    /// Another process may have other things.
    main: Option<u64>,
    has_rested: bool,
}

impl Presence {
    /// Whether what is listed may be something else than when this was last called.
    pub(crate) fn look(&mut self, all: &Aggregate) -> bool {
        let house = all.house();
        let before = std::mem::take(&mut self.seen);
        let mut is_news = false;
        for name in house.names() {
            let standing = house.standing(&name);
            let seen = before.get(&name).copied();
            let now = match standing.how {
                How::Connected(main) => {
                    let is_awake_again = seen.is_some_and(|seen| seen.has_rested)
                        && all.remembered().knows(&name, standing.edition);
                    is_news |= !is_awake_again && seen.and_then(|seen| seen.main) != Some(main);
                    Some(Seen {
                        main: Some(main),
                        has_rested: false,
                    })
                }
                How::Resting => {
                    is_news |= seen.is_none();
                    Some(Seen {
                        main: seen.and_then(|seen| seen.main),
                        has_rested: true,
                    })
                }
                How::Coming => seen,
                How::Away => {
                    is_news |= seen.is_some();
                    None
                }
            };
            if let Some(now) = now {
                self.seen.insert(name, now);
            }
        }
        is_news || before.keys().any(|name| !self.seen.contains_key(name))
    }
}
