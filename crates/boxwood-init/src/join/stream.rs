//! Init of a box that cannot receive descriptors, such as one behind a remote engine or in a VM.
//!
//! Frames arrive on standard input, through the engine's attached connection. A relay process translates them
//! into messages and descriptors for an ordinary init. The engine has created all mounts.

use std::fs;
use std::path::Path;

use boxwood_init::{
    BOOTSTRAP_DIR, Channel, Decoder, Facts, Frame, FromInit, PROGRAM_NAME, Plan, ToInit,
};
use boxwood_sys::clone::{self, exit_now};
use boxwood_sys::signals;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::relay::{self, Wire};
use super::{apply, take_environment};
use crate::rootfs::add_user;
use crate::serve;
use crate::serve::daemon_connection::DaemonConnection;
use crate::serve::group_tags;
use crate::setup::lockdown::Locked;
use crate::setup::null_stdio;
use crate::step::StepError;

pub(crate) fn run() -> ! {
    // First: unlike a native init this program was exec'ed and is therefore dumpable.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        exit_now(1);
    }
    let Ok(wire) = take_wire() else { exit_now(1) };
    let _ = rustix::thread::set_name(c"boxwood-init");
    let mut decoder = Decoder::default();
    let Some(mut plan) = receive_plan(&wire, &mut decoder) else {
        exit_now(0)
    };
    let group_tags = !group_tags::has_subreapers();
    match set_up(&plan) {
        Ok(mut locked) => {
            locked.group_tags = group_tags;
            locked.relayed = true;
            take_environment(&mut plan);
            fork_relay(wire, decoder, &plan, locked)
        }
        Err(StepError { step, errno }) => {
            let _ = write_frame(
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

/// Moves the stream above the descriptors of commands and opens `/dev/null` as stdin, stdout and stderr.
fn take_wire() -> rustix::io::Result<Wire> {
    signals::reset_all().map_err(|_| rustix::io::Errno::IO)?;
    let keep = |fd: std::os::fd::BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    let wire = Wire {
        input: keep(rustix::stdio::stdin())?,
        output: keep(rustix::stdio::stdout())?,
    };
    null_stdio()?;
    Ok(wire)
}

fn receive_plan(wire: &Wire, decoder: &mut Decoder) -> Option<Box<Plan>> {
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        match decoder.next_frame().ok()? {
            Some(Frame::Request {
                message: ToInit::Plan(plan),
                ..
            }) => return Some(plan),
            Some(Frame::Ping) => write_frame(wire, &Frame::Pong).ok()?,
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

/// Blocks until the frame is written. Used only before the relay starts.
fn write_frame(wire: &Wire, frame: &Frame) -> Result<(), ()> {
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

fn set_up(plan: &Plan) -> Result<Locked, StepError> {
    // The program is no longer needed. If it cannot be removed it is harmless: root owns it.
    let _ = fs::remove_file(Path::new(BOOTSTRAP_DIR).join(PROGRAM_NAME));
    if !plan.read_only_root {
        add_user(&plan.identity)?;
    }
    apply(plan)
}

/// Forks the relay and continues as an ordinary init.
fn fork_relay(wire: Wire, decoder: Decoder, plan: &Plan, locked: Locked) -> ! {
    let Ok((init_channel, relay_channel)) = Channel::pair() else {
        exit_now(1)
    };
    // SAFETY: one thread.
    match unsafe { clone::plain_fork() } {
        Ok(Some(_relay)) => {
            drop((wire, decoder, relay_channel));
            serve::run(DaemonConnection::new(init_channel, None), plan, &locked)
        }
        Ok(None) => {
            let ready = locked.ready();
            drop((init_channel, locked));
            relay::run(
                wire,
                decoder,
                relay_channel,
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

/// Read from this process, which has the same restrictions as init.
fn facts() -> Facts {
    let dropped = (0..64)
        .map_while(|number| {
            rustix::thread::capability_is_in_bounding_set(
                rustix::thread::CapabilitySet::from_bits_retain(1 << number),
            )
            .ok()
        })
        .all(|is_set| !is_set);
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
