//! `boxwood-init`: the spawner, and PID 1 of every local box.
//!
//! One small static program with one thread. The daemon starts it with a channel as standard input: it is
//! then the *spawner*. For each native box it forks itself into new namespaces; the fork is never exec'ed and
//! becomes the box's init. A container engine or nsjail starts it as `boxwood-init join` (or `join-stdin`,
//! `join-stream`): it is then the init of that container. As `boxwood-init enter` it executes another program
//! in a user namespace that the daemon created.

mod join;
mod rootfs;
mod serve;
mod setup;
mod spawner;
mod step;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref() {
        Some(word) if word == boxwood_init::JOIN => join::run(boxwood_init::BOOTSTRAP_DIR),
        Some(word) if word == boxwood_init::JOIN_STDIN => join::run("/proc/self/fd/0"),
        Some(word) if word == boxwood_init::ENTER => spawner::enter_user_namespace::run(arguments),
        Some(word) if word == boxwood_init::JOIN_STREAM => join::stream::run(),
        _ => spawner::run(),
    }
}
