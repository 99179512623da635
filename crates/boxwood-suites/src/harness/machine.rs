//! Examines this machine without a backend: what the suites expect must not depend on what a backend reports.

use std::path::Path;

use crate::Privilege;

/// The privilege of the test process, and whether it has subordinate ids for boxes.
pub fn privilege() -> Privilege {
    if rustix::process::geteuid().is_root() {
        return Privilege::Root;
    }
    Privilege::Rootless {
        subuids: installed("newuidmap")
            && installed("newgidmap")
            && has_range("/etc/subuid")
            && has_range("/etc/subgid"),
    }
}

/// Returns true if the program is installed on the host.
pub fn installed(tool: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|directory| Path::new(directory).join(tool).exists())
}

/// Returns true if the tunnel device can be opened, which `pasta` needs. Some hosts allow it for root only.
pub fn opens_tun() -> bool {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .is_ok()
}

/// Returns true if the table gives the caller, by name or number, enough subordinate ids for a box.
fn has_range(table: &str) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    });
    let table = std::fs::read_to_string(table).unwrap_or_default();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [owner, _, count] = fields.as_slice() else {
            return false;
        };
        let is_own = Some(*owner) == name.as_deref() || *owner == uid.to_string();
        is_own && count.trim().parse::<u32>().is_ok_and(|count| count > 1000)
    })
}

/// Queries the Landlock ABI version with the raw system call, 444 on every architecture.
pub fn has_landlock() -> bool {
    let script =
        "import ctypes, sys; sys.exit(0 if ctypes.CDLL(None).syscall(444, None, 0, 1) > 0 else 1)";
    std::process::Command::new("/usr/bin/python3")
        .args(["-I", "-c", script])
        .status()
        .is_ok_and(|status| status.success())
}
