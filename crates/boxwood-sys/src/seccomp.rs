//! Seccomp filters: assembles a deny-list, installs it and handles notifications.
//!
//! Which calls are denied is decided by `boxwood-init`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const LD_W_ABS: u16 = 0x20;
const JMP_JEQ: u16 = 0x15;
const JMP_JGE: u16 = 0x35;
const JMP_JSET: u16 = 0x45;
const RET: u16 = 0x06;

const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Set in calls of the x32 ABI, which has other numbers for the same calls.
const X32_BIT: u32 = 0x4000_0000;

/// What happens to a call that matches a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The call fails with this errno.
    Errno(i32),
    /// The holder of the filter's listener is notified, so that it can report the name of the call.
    Named,
}

/// A condition on the low or high 32 bits of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Equals {
        arg: u8,
        value: u32,
    },
    NotEquals {
        arg: u8,
        value: u32,
    },
    AnyBit {
        arg: u8,
        mask: u32,
    },
    /// For pointers, whose low half may be zero.
    AnyHighBit {
        arg: u8,
    },
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub syscall: i64,
    /// All conditions must hold; an empty list matches always.
    pub when: Vec<When>,
    pub refusal: Refusal,
}

/// Low word of an argument on a little-endian machine.
fn offset_of_arg(arg: u8) -> u32 {
    16 + 8 * u32::from(arg)
}

fn stmt(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// An assembled program.
pub struct Program {
    code: Vec<libc::sock_filter>,
}

/// Assembles a filter that allows everything except calls that match a rule. Calls of another architecture
/// (`int 0x80`, x32) fail with `ENOSYS`. `named` is the result of rules with [`Refusal::Named`]: an errno if the
/// filter is installed without a listener.
///
/// Each rule reloads its operands and jumps only within itself, so that no jump exceeds 8 bits.
pub fn assemble(rules: &[Rule], named: Refusal) -> Program {
    let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | (u32::try_from(errno).unwrap_or(1) & 0xffff);
    let verdict = |refusal: Refusal| match refusal {
        Refusal::Errno(number) => errno(number),
        Refusal::Named => match named {
            Refusal::Named => libc::SECCOMP_RET_USER_NOTIF,
            Refusal::Errno(number) => errno(number),
        },
    };
    let mut code = vec![
        stmt(LD_W_ABS, OFFSET_ARCH),
        jump(JMP_JEQ, ARCH, 1, 0),
        stmt(RET, errno(libc::ENOSYS)),
        stmt(LD_W_ABS, OFFSET_NR),
        jump(JMP_JGE, X32_BIT, 0, 1),
        stmt(RET, errno(libc::ENOSYS)),
    ];
    for rule in rules {
        // Two instructions per condition, one for the verdict, one to reload the number.
        let body = u8::try_from(2 * rule.when.len() + 1).unwrap_or(u8::MAX);
        let reload = u8::from(!rule.when.is_empty());
        let number = u32::try_from(rule.syscall).unwrap_or(u32::MAX);
        code.push(jump(JMP_JEQ, number, 0, body + reload));
        let mut remaining = body;
        for when in &rule.when {
            remaining -= 2;
            let (word, next) = match *when {
                When::Equals { arg, value } => {
                    (offset_of_arg(arg), jump(JMP_JEQ, value, 0, remaining))
                }
                When::NotEquals { arg, value } => {
                    (offset_of_arg(arg), jump(JMP_JEQ, value, remaining, 0))
                }
                When::AnyBit { arg, mask } => {
                    (offset_of_arg(arg), jump(JMP_JSET, mask, 0, remaining))
                }
                When::AnyHighBit { arg } => (
                    offset_of_arg(arg) + 4,
                    jump(JMP_JSET, u32::MAX, 0, remaining),
                ),
            };
            code.push(stmt(LD_W_ABS, word));
            code.push(next);
        }
        code.push(stmt(RET, verdict(rule.refusal)));
        if reload == 1 {
            code.push(stmt(LD_W_ABS, OFFSET_NR));
        }
    }
    code.push(stmt(RET, libc::SECCOMP_RET_ALLOW));
    Program { code }
}

impl Program {
    fn as_fprog(&self) -> io::Result<libc::sock_fprog> {
        let len = u16::try_from(self.code.len())
            .map_err(|_| io::Error::other("the seccomp filter is longer than the kernel allows"))?;
        Ok(libc::sock_fprog {
            len,
            filter: self.code.as_ptr().cast_mut(),
        })
    }

    /// Installs the filter on this thread; `no_new_privs` must be set.
    pub fn install(&self) -> io::Result<()> {
        self.install_with(0).map(drop)
    }

    /// Installs the filter and returns the descriptor on which refused calls are reported.
    pub fn install_with_listener(&self) -> io::Result<OwnedFd> {
        let fd = self.install_with(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
        // SAFETY: with NEW_LISTENER the kernel returns a new descriptor that has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn install_with(&self, flags: libc::c_ulong) -> io::Result<RawFd> {
        let program = self.as_fprog()?;
        // SAFETY: `program` points to `len` instructions that live until the call returns; the
        // kernel copies them.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(i32::try_from(rc).unwrap_or(-1))
    }
}

/// Returns true if a filter is in force for this thread.
pub fn is_filtered() -> bool {
    // SAFETY: integers only.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    u32::try_from(mode).is_ok_and(|mode| mode == libc::SECCOMP_MODE_FILTER)
}

/// A refused call that waits for a reply.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    id: u64,
    /// Pid in the listener's PID namespace.
    pub pid: i32,
    pub syscall: i64,
}

const IOCTL_RECV: libc::c_ulong = 0xc050_2100;
const IOCTL_SEND: libc::c_ulong = 0xc018_2101;

/// Receives the next notification. `Ok(None)` if the calling process died meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Notification>> {
    let mut request = libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    };
    // SAFETY: `request` is zeroed as the kernel requires, and large enough.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), IOCTL_RECV as _, &raw mut request) };
    if rc == 0 {
        return Ok(Some(Notification {
            id: request.id,
            pid: i32::try_from(request.pid).unwrap_or(0),
            syscall: i64::from(request.data.nr),
        }));
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        error => Err(error),
    }
}

/// Makes the call fail with `errno`. Does nothing if the process died meanwhile.
pub fn refuse(listener: BorrowedFd<'_>, call: &Notification, errno: i32) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: -errno,
        flags: 0,
    };
    // SAFETY: `response` is a valid seccomp_notif_resp.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), IOCTL_SEND as _, &raw const response) };
    if rc == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_lands_inside_the_program() {
        let rules = [
            Rule {
                syscall: 1,
                when: vec![],
                refusal: Refusal::Named,
            },
            Rule {
                syscall: 2,
                when: vec![
                    When::AnyBit { arg: 1, mask: 0x40 },
                    When::AnyBit {
                        arg: 2,
                        mask: 0o6000,
                    },
                ],
                refusal: Refusal::Errno(libc::EPERM),
            },
            Rule {
                syscall: 3,
                when: vec![
                    When::NotEquals { arg: 0, value: 1 },
                    When::AnyHighBit { arg: 1 },
                ],
                refusal: Refusal::Named,
            },
        ];
        let program = assemble(&rules, Refusal::Named);
        for (at, instruction) in program.code.iter().enumerate() {
            if instruction.code & 0x07 == 0x05 {
                for hop in [instruction.jt, instruction.jf] {
                    assert!(at + 1 + usize::from(hop) < program.code.len());
                }
            }
        }
        assert_eq!(
            program.code.last().map(|i| i.k),
            Some(libc::SECCOMP_RET_ALLOW)
        );
    }
}
