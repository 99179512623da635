//! A program that listens on loopback, for the length of a measurement.
//!
//! Input: a command and the address on which it listens. Output: the running process, once it listens. Dropping it
//! kills the process and everything that it started.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::quiet;

const START: Duration = Duration::from_mins(1);

pub(in super::super) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    pub(in super::super) fn start(mut command: Command, address: SocketAddr) -> Result<Self> {
        let program = command.get_program().display().to_string();
        let child = quiet(&mut command)
            // Dropping the server kills the group.
            .process_group(0)
            .spawn()
            .with_context(|| format!("`{program}` could not be started"))?;
        let mut server = Self { child, address };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("`{program}` ended at once: {status}");
            }
            ensure!(
                Instant::now() < deadline,
                "`{program}` did not listen after {} s",
                START.as_secs()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub(in super::super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in super::super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An error means that the group has ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
