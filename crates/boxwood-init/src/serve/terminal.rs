//! Opens a terminal in the box's own devpts.

use std::os::fd::OwnedFd;

use boxwood_init::Identity;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::serve::owner;
use crate::step::{Step, StepError};

/// The device node must be owned by the commands' uid, so it is opened with that uid.
pub(crate) fn open(
    rows: u16,
    cols: u16,
    identity: &Identity,
) -> Result<(OwnedFd, OwnedFd), StepError> {
    owner::as_command(identity, || open_own(rows, cols)).step("open a terminal")?
}

fn open_own(rows: u16, cols: u16) -> Result<(OwnedFd, OwnedFd), StepError> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let open = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/pts/ptmx", open, Mode::empty()).step("open a terminal")?;
    rustix::pty::unlockpt(&master).step("unlock the terminal")?;
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).step("set the terminal size")?;
    let slave = match ioctl_tiocgptpeer(&master, flags) {
        // Kernels without TIOCGPTPEER: open by name. Nothing can be mounted over it in the box.
        Err(rustix::io::Errno::NOTTY) => {
            let name =
                rustix::pty::ptsname(&master, Vec::new()).step("get the terminal's slave name")?;
            rustix::fs::open(name, open, Mode::empty())
        }
        opened => opened,
    }
    .step("open the terminal's slave")?;
    Ok((master, slave))
}
