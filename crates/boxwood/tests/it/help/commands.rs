//! Help texts: verbs that run a command. A change here changes what users read.

use crate::support::command::help;

#[test]
fn run() {
    insta::assert_snapshot!(help(&["run"]), @r"
    Run a command in a new box, without a daemon

    Creates a box, runs the command in it, shows its output as it is written, and removes the box with
    its private files. Any host directory can be mounted, except those that contain secrets of the
    system or of Boxwood.

    Usage: boxwood run [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...
              Program and its arguments

    Options:
      -i, --interactive
              Pass stdin to the command

      -t, --tty
              Give the command a terminal

          --rm
              Accepted for compatibility with Docker; the box is always removed

          --config <FILE>
              Configuration file

              [env: BOXWOOD_CONFIG]

      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` passes the value of your own environment

      -w, --workdir <DIR>
              Working directory

          --timeout <DURATION>
              Stop the command after this time, such as `30s` or `2m`

    Box:
          --network
              Give the box network access

              Without this flag the box has only a loopback interface. With it the box can open outgoing
              connections, but not to this machine, other boxes or metadata addresses.

          --profile <NAME>
              Profile with defaults and limits (see `boxwood profiles`)

      -v, --volume <HOST:/PATH[:ro]>
              Mount a host directory or file; repeatable

              Directories that contain secrets of the system or of Boxwood are always refused.

          --workspace <DIR[:ro]>
              Host directory to use as /workspace [default: a private, empty directory]

          --skill <NAME>
              Mount a skill of the store under /workspace/.skills, read-only; repeatable

              Can also be added to the running box of an existing session.

          --image <NAME>
              Image to use as the root file system (see `boxwood image`) [default: the host's]

      -m, --memory <SIZE>
              Memory limit of the box, such as `512m`

          --cpus <N>
              CPU limit of the box, in cores

          --pids <N>
              Maximum number of processes in the box

          --disk <SIZE>
              Size of the private workspace and home, such as `1g`

          --read-only
              Make everything except the workspace, home and /tmp read-only

          --backend <NAME>
              Backend of the box: a name, or `auto` or `local` for the first that works

              There is no fallback from a named backend. `boxwood doctor` lists the backends.

          --require <MECHANISM>
              Refuse to start without this isolation mechanism, such as `seccomp`; repeatable

    Global options:
      -o, --output <FORMAT>
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood run -- python3 -c 'print(6 * 7)'
      boxwood run --workspace . -- make test            Mount this directory as /workspace
      boxwood run -v ~/data:/data:ro -- ls /data
      boxwood run --network -- pip install requests
      boxwood run --timeout 30s --memory 512m --pids 64 -- ./untrusted
      boxwood run -it -- bash
      boxwood run -o json -- id                         Print the result as one JSON object

    The words after -- are the program and its arguments; they are not interpreted by a shell. Ctrl-C
    and TERM are sent to the command; the third signal kills it. Without --timeout there is no time
    limit, unless the profile has one.

    Exit codes: the command's own, 128+n if signal n ended it; 124 timeout; 125 Boxwood failed.
    ");
}

#[test]
fn exec() {
    insta::assert_snapshot!(help(&["exec"]), @r"
    Run a command in a session

    Creates the session if it does not exist, as described by the flags under Box. Output is shown as it
    is written. The session and its files are kept until `boxwood rm`, or until it has been idle for the
    daemon's session TTL.

    Usage: boxwood exec [OPTIONS] <SESSION> -- <CMD>...

    Arguments:
      <SESSION>
              Name of the session

      <CMD>...
              Program and its arguments

    Options:
      -i, --interactive
              Pass stdin to the command

      -t, --tty
              Give the command a terminal

      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` passes the value of your own environment

      -w, --workdir <DIR>
              Working directory

          --timeout <DURATION>
              Stop the command after this time, such as `30s` or `2m`

    Box:
          --network
              Give the box network access

              Without this flag the box has only a loopback interface. With it the box can open outgoing
              connections, but not to this machine, other boxes or metadata addresses.

          --profile <NAME>
              Profile with defaults and limits (see `boxwood profiles`)

      -v, --volume <HOST:/PATH[:ro]>
              Mount a host directory or file; repeatable

              Directories that contain secrets of the system or of Boxwood are always refused.

          --workspace <DIR[:ro]>
              Host directory to use as /workspace [default: a private, empty directory]

          --skill <NAME>
              Mount a skill of the store under /workspace/.skills, read-only; repeatable

              Can also be added to the running box of an existing session.

          --image <NAME>
              Image to use as the root file system (see `boxwood image`) [default: the host's]

      -m, --memory <SIZE>
              Memory limit of the box, such as `512m`

          --cpus <N>
              CPU limit of the box, in cores

          --pids <N>
              Maximum number of processes in the box

          --disk <SIZE>
              Size of the private workspace and home, such as `1g`

          --read-only
              Make everything except the workspace, home and /tmp read-only

          --backend <NAME>
              Backend of the box: a name, or `auto` or `local` for the first that works

              There is no fallback from a named backend. `boxwood doctor` lists the backends.

          --require <MECHANISM>
              Refuse to start without this isolation mechanism, such as `seccomp`; repeatable

    Global options:
      -o, --output <FORMAT>
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood exec build -- make -j2
      boxwood exec build --timeout 2m -e CI=1 -- sh -c 'make && ./test'
      tar c src | boxwood exec -i build -- tar x
      boxwood exec -t build -- top
      boxwood exec build -o json -- ls            Print the result as one JSON object

    The words after -- are the program and its arguments; they are not interpreted by a shell. Ctrl-C is
    sent to the command; the third Ctrl-C kills it. The command and its output continue when the daemon
    is restarted. The command is stopped if the connection cannot be restored.

    Exit codes: the command's own, 128+n if signal n ended it; 124 timeout; 125 Boxwood failed.
    ");
}

#[test]
fn sh() {
    insta::assert_snapshot!(help(&["sh"]), @r"
    Open a shell in a session

    Creates the session if it does not exist. Runs bash in a terminal of the box, or sh if the box has
    no bash. The terminal follows the size of your window.

    Usage: boxwood sh [OPTIONS] <SESSION> [-- <CMD>...]

    Arguments:
      <SESSION>
              Name of the session

      [CMD]...
              Program to run instead of a shell

    Options:
      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` passes the value of your own environment

      -w, --workdir <DIR>
              Working directory

          --timeout <DURATION>
              Stop the command after this time, such as `30s` or `2m`

    Box:
          --network
              Give the box network access

              Without this flag the box has only a loopback interface. With it the box can open outgoing
              connections, but not to this machine, other boxes or metadata addresses.

          --profile <NAME>
              Profile with defaults and limits (see `boxwood profiles`)

      -v, --volume <HOST:/PATH[:ro]>
              Mount a host directory or file; repeatable

              Directories that contain secrets of the system or of Boxwood are always refused.

          --workspace <DIR[:ro]>
              Host directory to use as /workspace [default: a private, empty directory]

          --skill <NAME>
              Mount a skill of the store under /workspace/.skills, read-only; repeatable

              Can also be added to the running box of an existing session.

          --image <NAME>
              Image to use as the root file system (see `boxwood image`) [default: the host's]

      -m, --memory <SIZE>
              Memory limit of the box, such as `512m`

          --cpus <N>
              CPU limit of the box, in cores

          --pids <N>
              Maximum number of processes in the box

          --disk <SIZE>
              Size of the private workspace and home, such as `1g`

          --read-only
              Make everything except the workspace, home and /tmp read-only

          --backend <NAME>
              Backend of the box: a name, or `auto` or `local` for the first that works

              There is no fallback from a named backend. `boxwood doctor` lists the backends.

          --require <MECHANISM>
              Refuse to start without this isolation mechanism, such as `seccomp`; repeatable

    Global options:
      -o, --output <FORMAT>
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood sh build
      boxwood sh scratch --network --memory 2g
      boxwood sh build -- python3                 Run another program than a shell

    Leave with `exit` or Ctrl-D.
    ");
}
