//! Reads files of `/proc`.

use std::path::Path;
use std::{fs, io};

/// The text of a file. Invalid UTF-8 is replaced: a program can choose any bytes as its name, and must not be
/// skipped because of it.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A field of `/proc/PID/status`, without surrounding white space; empty if the kernel does not report it.
pub fn status_field(pid: i32, name: &str) -> io::Result<String> {
    let status = text(format!("/proc/{pid}/status"))?;
    Ok(field(&status, name).to_owned())
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim()
}

/// Returns true if the process has pid 1 in a PID namespace below ours.
pub fn is_first_of_namespace(pid: i32) -> io::Result<bool> {
    status_field(pid, "NSpid:").map(|pids| is_first(&pids))
}

/// One pid per namespace, ours first. A single one means that the process is in our namespace.
fn is_first(pids: &str) -> bool {
    pids.split_whitespace().skip(1).last() == Some("1")
}

pub fn parent(pid: i32) -> Option<i32> {
    status_field(pid, "PPid:").ok()?.parse().ok()
}

/// Start time of a process in clock ticks since boot. `None` if there is none, or only a zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = text(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The pids of all processes that `/proc` shows.
pub fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_name_that_is_not_utf8_is_read() {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_name(c"\xff\xfe) T").expect("a name");
            ["stat", "status"].map(|file| text(format!("/proc/thread-self/{file}")))
        });
        let [stat, status] = thread.join().expect("no panic");
        let stat = stat.expect("it runs");
        let (_, behind) = stat.rsplit_once(") ").expect("a name in brackets");
        assert!(behind.starts_with('R'), "{stat}");
        assert!(status.expect("it runs").contains("\nState:\tR"));
    }

    #[test]
    fn only_the_first_process_of_a_namespace_below_ours_is_found() {
        let check = |numbers: &str, expected| {
            let status = format!("Name:\tboxwood-init\nPPid:\t7\nNSpid:\t{numbers}\n");
            assert_eq!(field(&status, "PPid:"), "7");
            assert_eq!(is_first(field(&status, "NSpid:")), expected, "{numbers}");
        };
        check("9\t1", true);
        check("9\t4\t1", true);
        check("9\t2", false);
        check("1", false);
        assert!(!is_first(field("", "NSpid:")));
        assert_eq!(
            parent(std::process::id().cast_signed()),
            Some(std::os::unix::process::parent_id().cast_signed())
        );
    }
}
