//! nsjail's command line.
//!
//! Comes in: a number. Goes out: the arguments. Never here: anything else. What a client chose
//! goes to the box by its init's channel, and paths of the operator's by open descriptors.

use std::ffi::OsString;

use boxwood_init::JOIN_STDIN;

/// What init needs until it has locked itself in: to leave its uid and empty the bounding set, and a
/// cgroup namespace once it is in its cgroup.
const CAPABILITIES: [&str; 5] = [
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
];

/// Where nsjail finds the init program: its own standard output, which it has no other use for.
const PROGRAM: &str = "/proc/self/fd/1";

/// `init_gid` is the box's own number for init's group, which sees every process in `/proc`.
pub(crate) fn arguments(init_gid: u32) -> Vec<OsString> {
    let proc = format!("none:/proc:proc:hidepid=2,gid={init_gid}");
    let mut arguments: Vec<&str> = vec![
        "--mode",
        "o",
        "--quiet",
        // It is root of the box's own user namespace already.
        "--disable_clone_newuser",
        "--user",
        "0",
        "--group",
        "0",
        "--hostname",
        "box",
        // An empty root of its own, which the mounter furnishes and closes.
        "--rw",
        // In place of nsjail's own `/proc`, which shows commands their init.
        "--disable_proc",
        "--mount",
        &proc,
        "--bindmount_ro",
        "/dev/null",
        // Init takes one when it is in its cgroup; one of now would show the daemon's.
        "--disable_clone_newcgroup",
        // Limits are the cgroup's. nsjail's own are for programs that run once.
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
    fn the_command_line_is_made_of_constants_and_one_number() {
        let arguments = arguments(65_533);
        let lines: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
