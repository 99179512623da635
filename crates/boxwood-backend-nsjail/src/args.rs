//! Builds nsjail's command line.
//!
//! It consists of constants and one number. Values from clients reach the box through init's channel, and
//! paths as open descriptors.

use std::ffi::OsString;

use boxwood_init::JOIN_STDIN;

/// Init needs them to change its uid, to empty the bounding set, and to create a cgroup namespace once it
/// is in its cgroup. It drops them afterwards.
const CAPABILITIES: [&str; 5] = [
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
];

/// The path of the init program for nsjail: its stdout, which is not used otherwise.
const PROGRAM: &str = "/proc/self/fd/1";

/// `init_gid` is the gid of init inside the box. It may see all processes in `/proc`.
pub(crate) fn arguments(init_gid: u32) -> Vec<OsString> {
    let proc = format!("none:/proc:proc:hidepid=2,gid={init_gid}");
    let mut arguments: Vec<&str> = vec![
        "--mode",
        "o",
        "--quiet",
        // nsjail already runs as root of the box's user namespace.
        "--disable_clone_newuser",
        "--user",
        "0",
        "--group",
        "0",
        "--hostname",
        "box",
        // An empty root, which the mount helper populates and makes read-only.
        "--rw",
        // Replaces nsjail's `/proc`, in which commands would see init.
        "--disable_proc",
        "--mount",
        &proc,
        "--bindmount_ro",
        "/dev/null",
        // Init creates it after joining its cgroup. Created now it would show the daemon's cgroup.
        "--disable_clone_newcgroup",
        // Limits are set by the cgroup. nsjail's own limits are for one-shot programs.
        "--time_limit",
        "0",
        "--disable_rlimits",
        "--nice_level",
        "0",
    ];
    for capability in CAPABILITIES {
        arguments.extend(["--cap", capability]);
    }
    arguments.extend(["--execute_fd", "--exec_file", PROGRAM]);
    arguments.extend(["--", "boxwood-init", JOIN_STDIN]);
    arguments.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_consists_of_constants_and_one_number() {
        let arguments = arguments(65_533);
        let lines: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
