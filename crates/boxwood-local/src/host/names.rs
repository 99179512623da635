//! Names of boxes on this machine.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Boxes outlive the daemon, and pids repeat (always in a container), so a name also contains a random
/// id of the daemon's run.
fn run_id() -> &'static str {
    static RUN_ID: OnceLock<String> = OnceLock::new();
    RUN_ID.get_or_init(|| {
        random_digits(8).unwrap_or_else(|_| {
            // Without `/proc` no box can start, so this fallback only has to be unlikely to repeat.
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            format!("{:08x}", now.tv_nsec)
        })
    })
}

/// Random hex digits, at most 32.
pub(crate) fn random_digits(count: usize) -> io::Result<String> {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let digits = random.chars().filter(char::is_ascii_hexdigit);
    Ok(digits.take(count).collect())
}

/// A box name that is unique on this host and never reused: pid, run id and a counter.
pub fn next_name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("b{}-{}-{number}", std::process::id(), run_id())
}

/// The number of the next name.
pub(crate) fn next_number() -> u64 {
    NUMBER.load(Ordering::Relaxed)
}

struct Parts<'a> {
    pid: u32,
    run_id: &'a str,
    number: u64,
}

fn parts(name: &str) -> Option<Parts<'_>> {
    let mut parts = name.strip_prefix('b')?.splitn(3, '-');
    Some(Parts {
        pid: parts.next()?.parse().ok()?,
        run_id: parts.next()?,
        number: parts.next()?.parse().ok()?,
    })
}

/// Returns true if the name has the form of a box name. Such a name is safe as part of a path.
pub(crate) fn is_box_name(name: &str) -> bool {
    let is_plain = |run_id: &str| run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    parts(name).is_some_and(|parts| is_plain(parts.run_id))
}

/// Returns true if this process created the name, with number `since` or later.
pub(crate) fn is_from_this_run(name: &str, since: u64) -> bool {
    parts(name).is_some_and(|parts| {
        parts.pid == std::process::id() && parts.run_id == run_id() && parts.number >= since
    })
}

/// Returns true if the process that created the name is gone. Its box may still be running.
pub(crate) fn creator_is_dead(name: &str) -> bool {
    parts(name).is_some_and(|parts| {
        if parts.pid == std::process::id() {
            return parts.run_id != run_id();
        }
        !Path::new(&format!("/proc/{}", parts.pid)).exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_recognised() {
        let since = next_number();
        let (one, other) = (next_name(), next_name());
        assert_ne!(one, other);
        assert!(is_from_this_run(&one, since) && is_from_this_run(&other, since));
        assert!(!is_from_this_run(&one, next_number()));
        assert!(!creator_is_dead(&one));
        assert!(is_box_name(&one));
        for other in [
            "",
            "b",
            "0123456789ab",
            "b1-../../x-1",
            "b1-a/b-1",
            "b1-x",
            "b12-7",
        ] {
            assert!(!is_box_name(other), "{other}");
        }
    }

    #[test]
    fn an_earlier_process_with_the_same_pid_is_dead() {
        let me = std::process::id();
        assert!(creator_is_dead(&format!("b{me}-00000000-7")));
        assert!(!is_from_this_run(&format!("b{me}-00000000-7"), 0));
        assert!(!creator_is_dead("b1-00000000-7"));
        for other in ["b", "bx-1", "0123456789ab", "b12", "b12-"] {
            assert!(!creator_is_dead(other), "{other}");
        }
    }
}
