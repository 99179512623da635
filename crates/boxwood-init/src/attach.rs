//! Init of a box that no descriptor reaches: its standard input and output are all there is.
//!
//! Comes in: frames from a container engine's attached connection, the plan first. Goes out: the same
//! init as everywhere, and beside it a relay that turns frames into messages and descriptors. Never
//! here: a mount; the engine made them all.

use std::fs;
use std::path::Path;

use boxwood_init::{
    Channel, Decoder, Facts, Frame, FromInit, MEETING_PLACE, PROGRAM_NAME, Plan, ToInit,
};
use boxwood_sys::clone::{self, exit_now};
use boxwood_sys::signals;
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::door::Daemon;
use crate::join::{carry_out, take_environment};
use crate::lockdown::Locked;
use crate::relay::{self, Wire};
use crate::step::StepError;
use crate::{account, marks, serve};

pub(crate) fn run() -> ! {
    // First of all: this program was exec'ed, and its memory is as open as any other's.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        exit_now(1);
    }
    let Ok(wire) = take_wire() else { exit_now(1) };
    let _ = rustix::thread::set_name(c"boxwood-init");
    let mut decoder = Decoder::default();
    let Some(mut plan) = first_order(&wire, &mut decoder) else {
        exit_now(0)
    };
    let marks = !marks::has_subreapers();
    match settle(&plan) {
        Ok(mut locked) => {
            locked.marks = marks;
            locked.relayed = true;
            take_environment(&mut plan);
            part(wire, decoder, &plan, locked)
        }
        Err(StepError { step, errno }) => {
            let _ = say(
                &wire,
                &Frame::Event {
                    message: FromInit::PlanFailed { step, errno },
                    terminal: None,
                },
            );
            exit_now(1)
        }
    }
}

/// Moves the stream out of the way of programs, and lets go of everything else.
fn take_wire() -> rustix::io::Result<Wire> {
    signals::reset_all().map_err(|_| rustix::io::Errno::IO)?;
    let keep = |fd: std::os::fd::BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    let wire = Wire {
        input: keep(rustix::stdio::stdin())?,
        output: keep(rustix::stdio::stdout())?,
    };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(wire)
}

fn first_order(wire: &Wire, decoder: &mut Decoder) -> Option<Box<Plan>> {
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        match decoder.next_frame().ok()? {
            Some(Frame::Order {
                message: ToInit::Plan(plan),
                ..
            }) => return Some(plan),
            Some(Frame::Ping) => say(wire, &Frame::Here).ok()?,
            Some(_) => return None,
            None => match rustix::io::read(&wire.input, &mut buffer) {
                Ok(0) => return None,
                Ok(n) => decoder.push(&buffer[..n]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            },
        }
    }
}

/// Writes a frame to the end. Only before there is anything else to do.
fn say(wire: &Wire, frame: &Frame) -> Result<(), ()> {
    let packet = frame.encode().map_err(|_| ())?;
    let mut rest = &packet[..];
    while !rest.is_empty() {
        match rustix::io::write(&wire.output, rest) {
            Ok(n) => rest = &rest[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(()),
        }
    }
    Ok(())
}

fn settle(plan: &Plan) -> Result<Locked, StepError> {
    // The engine put it there for this one moment. Where it cannot go it is root's, and harmless.
    let _ = fs::remove_file(Path::new(MEETING_PLACE).join(PROGRAM_NAME));
    if !plan.read_only_root {
        account::add(&plan.identity)?;
    }
    carry_out(plan)
}

/// Becomes two: the relay, and init as everywhere.
fn part(wire: Wire, decoder: Decoder, plan: &Plan, locked: Locked) -> ! {
    let Ok((ours, theirs)) = Channel::pair() else {
        exit_now(1)
    };
    // SAFETY: one thread.
    match unsafe { clone::plain_fork() } {
        Ok(Some(_relay)) => {
            drop((wire, decoder, theirs));
            serve::run(Daemon::new(ours, None), plan, &locked)
        }
        Ok(None) => {
            let ready = FromInit::Ready {
                landlock: locked.landlock,
                notify: locked.listener.is_some(),
            };
            drop((ours, locked));
            relay::run(
                wire,
                decoder,
                theirs,
                plan.identity,
                &[
                    Frame::Facts(facts()),
                    Frame::Event {
                        message: ready,
                        terminal: None,
                    },
                ],
            )
        }
        Err(_) => exit_now(1),
    }
}

/// What the kernel says of this process, which is locked in as init is.
fn facts() -> Facts {
    let dropped = (0..64)
        .map_while(|number| {
            rustix::thread::capability_is_in_bounding_set(
                rustix::thread::CapabilitySet::from_bits_retain(1 << number),
            )
            .ok()
        })
        .all(|has| !has);
    Facts {
        no_new_privileges: rustix::thread::no_new_privs().unwrap_or(false),
        seccomp: boxwood_sys::seccomp::is_filtered(),
        capabilities_dropped: dropped,
        namespaces: namespaces(),
        interfaces: interfaces(),
    }
}

fn namespaces() -> Vec<(String, u64)> {
    let entries = fs::read_dir("/proc/self/ns").into_iter().flatten();
    entries
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let number = target.to_str()?.split_once(":[")?.1.strip_suffix(']')?;
            Some((entry.file_name().into_string().ok()?, number.parse().ok()?))
        })
        .collect()
}

fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let lines = table.lines().skip(2);
    lines
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}
