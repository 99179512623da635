//! The seccomp rules of a box.
//!
//! A deny-list, so that ordinary programs run unchanged. Each entry has been used to escape from containers
//! or has no meaning in one. Calls that no ordinary program makes are reported by name in the result.

use boxwood_init::Plan;
use boxwood_sys::seccomp::{self, Program, Refusal, Rule, When};

/// Every flag of `clone` and `unshare` that creates a namespace. The bit for time namespaces is valid only for
/// `unshare`: in `clone` it is part of the exit signal.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;
const TIME_NAMESPACE: u32 = 0x80;

const SETID_BITS: u32 = 0o6000;
const CREATE: u32 = libc::O_CREAT.cast_unsigned();
const TMPFILE_BIT: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();

const FORBIDDEN: Refusal = Refusal::Errno(libc::EPERM);
const ABSENT: Refusal = Refusal::Errno(libc::ENOSYS);
/// Returns success without any effect.
const NO_OP: Refusal = Refusal::Errno(0);
const UNSUPPORTED: Refusal = Refusal::Errno(libc::EOPNOTSUPP);
const NO_FAMILY: Refusal = Refusal::Errno(libc::EAFNOSUPPORT);

/// All rules. With a single uid, commands share init's uid, so calls that act on processes of the same uid
/// are denied for PID 1.
pub(crate) fn rules(plan: &Plan) -> Vec<Rule> {
    let mut rules: Vec<Rule> = boxwood_init::denied_syscalls()
        .map(|(_, syscall)| rule(syscall, vec![], Refusal::Named))
        .collect();
    namespaces(&mut rules);
    setid_files(&mut rules);
    quiet(&mut rules);
    sockets(&mut rules);
    personality(&mut rules);
    core_limit(&mut rules);
    if plan.identity.single_uid {
        protect_init(&mut rules);
    }
    if plan.watched.is_some() {
        reservations(&mut rules);
    }
    rules
}

pub(crate) fn name(syscall: i64) -> String {
    let conditional = [("unshare", libc::SYS_unshare), ("clone", libc::SYS_clone)];
    boxwood_init::denied_syscalls()
        .chain(conditional)
        .find(|(_, number)| *number == syscall)
        .map_or_else(|| format!("syscall {syscall}"), |(name, _)| name.to_owned())
}

fn rule(syscall: i64, when: Vec<When>, refusal: Refusal) -> Rule {
    Rule {
        syscall,
        when,
        refusal,
    }
}

fn namespaces(rules: &mut Vec<Rule>) {
    let any = |mask| vec![When::AnyBit { arg: 0, mask }];
    rules.push(rule(
        libc::SYS_unshare,
        any(NAMESPACE_FLAGS | TIME_NAMESPACE),
        Refusal::Named,
    ));
    rules.push(rule(libc::SYS_clone, any(NAMESPACE_FLAGS), Refusal::Named));
}

/// An additional filter for commands: `clone3` passes its flags in memory, where seccomp cannot check them, so
/// it returns `ENOSYS` and libc falls back to `clone`. Init itself needs `clone3` to start commands in their
/// cgroup.
pub(crate) fn command_filter() -> Program {
    seccomp::assemble(&[rule(libc::SYS_clone3, vec![], ABSENT)], FORBIDDEN)
}

/// A setuid file in a mounted workspace would be usable by every user of the host.
fn setid_files(rules: &mut Vec<Rule>) {
    let bits = |arg| When::AnyBit {
        arg,
        mask: SETID_BITS,
    };
    let mut refuse = |syscall, when| rules.push(rule(syscall, when, FORBIDDEN));
    refuse(libc::SYS_fchmod, vec![bits(1)]);
    refuse(libc::SYS_fchmodat, vec![bits(2)]);
    refuse(libc::SYS_fchmodat2, vec![bits(2)]);
    refuse(libc::SYS_mknodat, vec![bits(2)]);
    // Without O_CREAT the mode argument is undefined.
    for create in [CREATE, TMPFILE_BIT] {
        refuse(
            libc::SYS_openat,
            vec![
                When::AnyBit {
                    arg: 2,
                    mask: create,
                },
                bits(3),
            ],
        );
        #[cfg(target_arch = "x86_64")]
        refuse(
            libc::SYS_open,
            vec![
                When::AnyBit {
                    arg: 1,
                    mask: create,
                },
                bits(2),
            ],
        );
    }
    #[cfg(target_arch = "x86_64")]
    {
        refuse(libc::SYS_chmod, vec![bits(1)]);
        refuse(libc::SYS_creat, vec![bits(1)]);
        refuse(libc::SYS_mknod, vec![bits(1)]);
    }
    // Passes its mode in memory.
    rules.push(rule(libc::SYS_openat2, vec![], ABSENT));
}

/// Denied without a report: programs try these and have a fallback.
fn quiet(rules: &mut Vec<Rule>) {
    for syscall in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ] {
        rules.push(rule(syscall, vec![], ABSENT));
    }
    for syscall in [
        libc::SYS_mbind,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
    ] {
        rules.push(rule(syscall, vec![], FORBIDDEN));
    }
    // TIOCSTI and TIOCLINUX inject input into another terminal.
    for request in [0x5412, 0x541c] {
        rules.push(rule(
            libc::SYS_ioctl,
            vec![When::Equals {
                arg: 1,
                value: request,
            }],
            FORBIDDEN,
        ));
    }
}

/// Allows only Unix, IPv4, IPv6 and netlink routing sockets.
fn sockets(rules: &mut Vec<Rule>) {
    let not = |value| When::NotEquals { arg: 0, value };
    let families = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    let others = families.map(|family| not(family.cast_unsigned())).to_vec();
    rules.push(rule(libc::SYS_socket, others.clone(), NO_FAMILY));
    rules.push(rule(libc::SYS_socketpair, others, NO_FAMILY));
    rules.push(rule(
        libc::SYS_socket,
        vec![
            When::Equals {
                arg: 0,
                value: libc::AF_NETLINK.cast_unsigned(),
            },
            When::NotEquals {
                arg: 2,
                value: libc::NETLINK_ROUTE.cast_unsigned(),
            },
        ],
        NO_FAMILY,
    ));
}

/// Allows only the ordinary execution domains, without disabling address space randomization.
fn personality(rules: &mut Vec<Rule>) {
    let allowed = [0, 8, 0x0002_0000, 0x0002_0008, u32::MAX];
    let others = allowed
        .map(|value| When::NotEquals { arg: 0, value })
        .to_vec();
    rules.push(rule(libc::SYS_personality, others, FORBIDDEN));
}

/// Keeps the core dump limit at 1 (see `lockdown`). Programs that set it to 0 want to disable core dumps, so
/// the call returns success.
fn core_limit(rules: &mut Vec<Rule>) {
    const RLIMIT_CORE: u32 = 4;
    let core = |arg| When::Equals {
        arg,
        value: RLIMIT_CORE,
    };
    let set = |when| rule(libc::SYS_prlimit64, when, NO_OP);
    // A null pointer as the new limit only queries it.
    let low = When::NotEquals { arg: 2, value: 0 };
    rules.push(set(vec![core(1), low]));
    rules.push(set(vec![core(1), When::AnyHighBit { arg: 2 }]));
    rules.push(rule(libc::SYS_setrlimit, vec![core(0)], NO_OP));
}

/// `fallocate` can fill a disk at once, before the daemon measures the workspace. Libc and most programs have
/// a fallback because many file systems do not support it. Modes that free space stay allowed.
fn reservations(rules: &mut Vec<Rule>) {
    const PUNCH_HOLE_KEEP_SIZE: u32 = 0x03;
    const COLLAPSE_RANGE: u32 = 0x08;
    let not = |value| When::NotEquals { arg: 1, value };
    rules.push(rule(
        libc::SYS_fallocate,
        vec![not(PUNCH_HOLE_KEEP_SIZE), not(COLLAPSE_RANGE)],
        UNSUPPORTED,
    ));
    // The equivalent ioctls: `FS_IOC_RESVSP`, `FS_IOC_RESVSP64`, `FS_IOC_ZERO_RANGE`.
    for request in [0x4030_5828, 0x4030_582a, 0x4030_5839] {
        rules.push(rule(
            libc::SYS_ioctl,
            vec![When::Equals {
                arg: 1,
                value: request,
            }],
            UNSUPPORTED,
        ));
    }
}

fn protect_init(rules: &mut Vec<Rule>) {
    let init = |arg| When::Equals { arg, value: 1 };
    for syscall in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        rules.push(rule(syscall, vec![init(0)], FORBIDDEN));
    }
    for syscall in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
        rules.push(rule(syscall, vec![init(1)], FORBIDDEN));
        // PRIO_USER and IOPRIO_WHO_USER would include init.
        for value in [2, 3] {
            rules.push(rule(
                syscall,
                vec![When::Equals { arg: 0, value }],
                FORBIDDEN,
            ));
        }
    }
}
