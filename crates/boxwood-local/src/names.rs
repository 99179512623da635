//! What boxes are called on this machine.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Boxes outlive whoever made them and process numbers repeat (in a container always), so a name also
/// says which life of the process it was.
fn life() -> &'static str {
    static LIFE: OnceLock<String> = OnceLock::new();
    LIFE.get_or_init(|| {
        let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let digits: String = random
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(8)
            .collect();
        if digits.len() == 8 {
            return digits;
        }
        // Without a `/proc` no box starts either; the clock is random enough to be told so.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        format!("{:08x}", now.tv_nsec)
    })
}

/// A box's name, unique on this host and never used again: who made it, and the how manieth it was.
pub fn next_name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("b{}-{}-{number}", std::process::id(), life())
}

/// Marks a moment among the names that this process gives.
pub(crate) fn given_so_far() -> u64 {
    NUMBER.load(Ordering::Relaxed)
}

struct Parts<'a> {
    pid: u32,
    /// `None` in names of daemons that did not tell.
    life: Option<&'a str>,
    number: u64,
}

fn parts(name: &str) -> Option<Parts<'_>> {
    let mut words = name.strip_prefix('b')?.splitn(3, '-');
    let pid = words.next()?.parse().ok()?;
    let (life, number) = match (words.next()?, words.next()) {
        (life, Some(number)) => (Some(life), number),
        (number, None) => (None, number),
    };
    Some(Parts {
        pid,
        life,
        number: number.parse().ok()?,
    })
}

/// Whether it can be a name that some daemon gave. Such a one is fit to be part of a path.
pub(crate) fn is_one(name: &str) -> bool {
    let is_plain = |life: &str| life.bytes().all(|it| it.is_ascii_alphanumeric());
    parts(name).is_some_and(|parts| parts.life.is_none_or(is_plain))
}

/// Whether this process gave the name, at `since` or later.
pub(crate) fn is_ours(name: &str, since: u64) -> bool {
    parts(name).is_some_and(|parts| {
        parts.pid == std::process::id() && parts.life == Some(life()) && parts.number >= since
    })
}

/// Whether the process that made the box called `name` is dead. The box need not be.
pub(crate) fn maker_is_dead(name: &str) -> bool {
    parts(name).is_some_and(|parts| {
        if parts.pid == std::process::id() {
            return parts.life != Some(life());
        }
        !Path::new(&format!("/proc/{}", parts.pid)).exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once_and_known_again() {
        let since = given_so_far();
        let (one, other) = (next_name(), next_name());
        assert_ne!(one, other);
        assert!(is_ours(&one, since) && is_ours(&other, since));
        assert!(!is_ours(&one, given_so_far()));
        assert!(!maker_is_dead(&one));
        assert!(is_one(&one) && is_one("b12-7"));
        for other in ["", "b", "0123456789ab", "b1-../../x-1", "b1-a/b-1", "b1-x"] {
            assert!(!is_one(other), "{other}");
        }
    }

    #[test]
    fn another_life_with_the_same_number_is_dead() {
        let me = std::process::id();
        assert!(maker_is_dead(&format!("b{me}-00000000-7")));
        assert!(maker_is_dead(&format!("b{me}-7")));
        assert!(!is_ours(&format!("b{me}-00000000-7"), 0));
        assert!(!maker_is_dead("b1-00000000-7"));
        for other in ["b", "bx-1", "0123456789ab", "b12", "b12-"] {
            assert!(!maker_is_dead(other), "{other}");
        }
    }
}
