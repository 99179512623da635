//! Messages and their transport: a `SOCK_SEQPACKET` channel, or frames on a byte stream.

pub(crate) mod channel;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod plan;

/// Directory of a container with the init program and, unless the channel is a byte stream, the bootstrap
/// socket, over which init first contacts the daemon. Hidden before the first command runs.
pub const BOOTSTRAP_DIR: &str = "/.boxwood";
/// The init program in [`BOOTSTRAP_DIR`].
pub const PROGRAM_NAME: &str = "init";
/// The bootstrap socket in [`BOOTSTRAP_DIR`].
pub const SOCKET_NAME: &str = "channel";
/// First argument of the program when it is the first process of such a container.
pub const JOIN: &str = "join";
/// The same in a jail, where the directory is not mounted but open as standard input.
pub const JOIN_STDIN: &str = "join-stdin";
/// First argument to run another program in a user namespace. Followed by the path of the namespace, the
/// program and its arguments.
pub const ENTER: &str = "enter";
