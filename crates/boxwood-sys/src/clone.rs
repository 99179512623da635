//! Creates processes with `clone3`, as a fork and as a vfork.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// `CLONE_INTO_CGROUP` and `CLONE_CLEAR_SIGHAND` do not fit `c_int`, so all flags are `u64` here.
pub mod flags {
    pub const NEWUSER: u64 = libc::CLONE_NEWUSER as u64;
    pub const NEWNS: u64 = libc::CLONE_NEWNS as u64;
    pub const NEWPID: u64 = libc::CLONE_NEWPID as u64;
    pub const NEWNET: u64 = libc::CLONE_NEWNET as u64;
    pub const NEWIPC: u64 = libc::CLONE_NEWIPC as u64;
    pub const NEWUTS: u64 = libc::CLONE_NEWUTS as u64;
    pub(super) const PIDFD: u64 = libc::CLONE_PIDFD as u64;
    pub(super) const VM: u64 = libc::CLONE_VM as u64;
    pub(super) const VFORK: u64 = libc::CLONE_VFORK as u64;
    pub(super) const CLEAR_SIGHAND: u64 = 1 << 32;
    pub(super) const INTO_CGROUP: u64 = 1 << 33;
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

pub enum Forked {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Forks into new namespaces.
///
/// # Safety
/// The caller must have one thread. Otherwise the child would hold copies of locks whose owners do not exist
/// there.
pub unsafe fn fork(flags: u64) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: flags | flags::PIDFD,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is a valid clone_args of the size given, `pidfd` outlives the call, and without
    // CLONE_VM the child has its own copy of this stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => {
            // SAFETY: the kernel stored a new descriptor that has no other owner.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent {
                pid: i32::try_from(pid).unwrap_or(i32::MAX),
                pidfd,
            })
        }
    }
}

/// A reusable stack for children of [`vfork`].
pub struct ChildStack {
    memory: Box<[u128]>,
}

impl ChildStack {
    /// 64 KiB: the child only makes system calls and formats one error line.
    pub fn new() -> Self {
        Self {
            memory: vec![0_u128; 4096].into_boxed_slice(),
        }
    }
}

impl Default for ChildStack {
    fn default() -> Self {
        Self::new()
    }
}

/// Starts `child(arg)` in a new process that shares our memory; returns after its `execve` or `_exit`. If
/// `cgroup` is given, the process is created in it: moving it afterwards would cost an RCU grace period
/// (about 8 ms on an idle host). All signal handlers are reset to their defaults.
///
/// # Safety
/// `child` must make only async-signal-safe calls, must not allocate and must not return. `arg` must be valid
/// for it until this call returns. The caller must have one thread.
pub unsafe fn vfork(
    stack: &mut ChildStack,
    cgroup: Option<BorrowedFd<'_>>,
    child: extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> io::Result<i32> {
    let mut args = CloneArgs {
        flags: flags::VM | flags::VFORK | flags::CLEAR_SIGHAND,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.memory.as_mut_ptr() as u64,
        stack_size: size_of_val(&*stack.memory) as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= flags::INTO_CGROUP;
        args.cgroup = u64::try_from(cgroup.as_raw_fd()).unwrap_or(u64::MAX);
    }
    let number = libc::SYS_clone3;
    let (address, size) = ((&raw const args) as u64, size_of::<CloneArgs>() as u64);
    // SAFETY: forwarded from the caller; `args` and the stack live until the call returns, and
    // CLONE_VFORK keeps us suspended while the child uses them.
    let mut rc = unsafe { clone_raw(number, address, size, child, arg) };
    if rc == -i64::from(libc::ENOSYS) && cgroup.is_none() {
        // Kernels that emulate Linux may only support `clone`, which does not reset handlers. Init installs
        // none.
        let top = stack.memory.as_mut_ptr_range().end;
        // SAFETY: as above.
        rc = unsafe { vfork_by_clone(top.cast(), child, arg) };
    }
    if rc < 0 {
        Err(io::Error::from_raw_os_error(
            i32::try_from(-rc).unwrap_or(libc::EINVAL),
        ))
    } else {
        Ok(i32::try_from(rc).unwrap_or(i32::MAX))
    }
}

unsafe fn vfork_by_clone(
    stack_top: *mut c_void,
    child: extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> i64 {
    let flags = flags::VM | flags::VFORK | libc::SIGCHLD as u64;
    // SAFETY: forwarded from the caller.
    unsafe { clone_raw(libc::SYS_clone, flags, stack_top as u64, child, arg) }
}

/// Calls `clone3(first, second)`, or `clone(first, second)` without thread ids and TLS. The child starts on an
/// empty stack and cannot return through a Rust frame, so it calls `child` immediately. Only the parent
/// continues.
unsafe fn clone_raw(
    number: i64,
    first: u64,
    second: u64,
    child: extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> i64 {
    let rc: i64;
    // SAFETY: the call as documented; in the child rsp is the top of the given stack, 16-byte aligned, as the
    // call instruction expects.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") number => rc,
            in("rdi") first,
            in("rsi") second,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            in("r12") child,
            in("r13") arg,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: the call as documented; in the child sp is the top of the given stack, 16-byte aligned.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk #1",
            "2:",
            inlateout("x0") first => rc,
            in("x1") second,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
            in("x8") number,
            in("x20") child,
            in("x21") arg,
        );
    }
    rc
}

/// A fork without new namespaces, for helpers that need their own memory.
///
/// # Safety
/// As for [`fork`].
pub unsafe fn plain_fork() -> io::Result<Option<i32>> {
    // SAFETY: forwarded from the caller.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Exits immediately, without destructors or flushing buffers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn child(arg: *mut c_void) -> ! {
        // SAFETY: the test passes a pointer to an i32 that outlives the call.
        let cell = unsafe { &mut *arg.cast::<i32>() };
        *cell += 1;
        exit_now(7)
    }

    #[test]
    fn a_vforked_child_shares_memory_and_can_be_waited_for() {
        let mut stack = ChildStack::new();
        let mut cell = 41_i32;
        // SAFETY: `child` only writes one integer and exits. The test harness has threads, but the
        // child takes no lock.
        let pid = unsafe { vfork(&mut stack, None, child, (&raw mut cell).cast()) }.expect("vfork");
        let mut status = 0;
        // SAFETY: `status` is a valid out pointer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(cell, 42);
    }

    #[test]
    fn clone_works_like_clone3() {
        let mut stack = ChildStack::new();
        let top = stack.memory.as_mut_ptr_range().end;
        let mut cell = 41_i32;
        // SAFETY: as above; the stack lives until the child has ended.
        let pid = unsafe { vfork_by_clone(top.cast(), child, (&raw mut cell).cast()) };
        let pid = i32::try_from(pid).expect("a pid");
        assert!(pid > 0, "{}", io::Error::from_raw_os_error(-pid));
        let mut status = 0;
        // SAFETY: `status` is a valid out pointer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(cell, 42);
    }
}
