//! `boxwood-init`: the spawner, and PID 1 of every box it makes.
//!
//! One small static program with one thread. Started by the daemon with a channel as its standard
//! input it is the *spawner*; for each box it forks itself into new namespaces, and that fork, never
//! exec'ed, is the box's init. Started by a container engine or a jail as `boxwood-init join` (or
//! `join-stdin`) it is the init of the box it finds itself in. As `boxwood-init enter` it becomes
//! another program in a user namespace that the daemon made.

mod account;
mod attach;
mod birth;
mod command;
mod denials;
mod door;
mod enter;
mod files;
mod hold;
mod join;
mod kept;
mod lockdown;
mod marks;
mod mounter;
mod owner;
mod places;
mod relay;
mod relay_stream;
mod root;
mod serve;
mod spawner;
mod step;
mod supervise;
mod terminal;
mod tool;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref() {
        Some(word) if word == boxwood_init::JOIN => join::run(boxwood_init::MEETING_PLACE),
        Some(word) if word == boxwood_init::JOIN_STDIN => join::run("/proc/self/fd/0"),
        Some(word) if word == boxwood_init::ENTER => enter::run(arguments),
        Some(word) if word == boxwood_init::JOIN_STREAM => attach::run(),
        _ => spawner::run(),
    }
}
