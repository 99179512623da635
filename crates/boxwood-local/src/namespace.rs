//! Whether a process shares a namespace with this daemon.

use std::fs;
use std::io;

use rustix::process::Pid;

/// By the namespace's own number. An error when the kernel does not let us look.
pub fn is_shared(pid: Pid, name: &str) -> io::Result<bool> {
    let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{name}"));
    Ok(of(&pid.as_raw_nonzero().to_string())? == of("self")?)
}
