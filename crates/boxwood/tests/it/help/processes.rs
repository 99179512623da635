//! Help texts: verbs about managed processes. A change here changes what users read.

use crate::support::command::help;

#[test]
fn ps() {
    insta::assert_snapshot!(help(&["ps"]), @r"
    List the processes and commands of a session

    Without a session, lists the sessions.

    Usage: boxwood ps [OPTIONS] [SESSION]

    Arguments:
      [SESSION]
              Name of the session

    Options:
          --execs
              List only commands, including recently finished ones

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood ps                    List sessions, like `boxwood ls`
      boxwood ps tools              List managed processes and running commands of the session `tools`
      boxwood ps --execs tools      List its commands, including recently finished ones
    ");
}

#[test]
fn start() {
    insta::assert_snapshot!(help(&["start"]), @r"
    Start a managed process in a session

    A managed process continues to run after this command ends, such as a server that communicates over
    its stdin and stdout. A session can have several, each with its own id. Creates the session if it
    does not exist.

    Usage: boxwood start [OPTIONS] <SESSION> -- <CMD>...

    Arguments:
      <SESSION>
              Name of the session

      <CMD>...
              Program and its arguments

    Options:
          --id <ID>
              Name of the process within its session

              [default: default]

      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` passes the value of your own environment

      -w, --workdir <DIR>
              Working directory

              [default: /workspace]

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood start tools --id fs -- npx -y @modelcontextprotocol/server-filesystem /workspace
      boxwood attach tools fs           Connect to its stdin and stdout
      boxwood logs tools fs             Show its output
      boxwood stop tools fs             Stop it
    ");
}

#[test]
fn attach() {
    insta::assert_snapshot!(help(&["attach"]), @r#"
    Connect to stdin and stdout of a managed process

    Starts with the output that has not been read yet. Its stderr is shown by `boxwood logs`.

    Usage: boxwood attach [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
          --no-stdin
              Do not pass stdin to the process

          --since <OFFSET>
              Position in the output to start at, in bytes, or `now` for unread output

              [default: now]

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood attach tools fs
      echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | boxwood attach tools fs
      boxwood attach --no-stdin tools fs        Show output only
      boxwood attach --since 0 tools fs         Show all output that is still available

    Ctrl-C detaches; the process continues. The end of stdin does not detach. A process has one
    attachment at a time: a second one waits until the first ends. The attachment is resumed when the
    daemon is restarted; no output is lost or repeated.
    "#);
}

#[test]
fn logs() {
    insta::assert_snapshot!(help(&["logs"]), @r#"
    Show the recent output of a managed process

    Prints its stdout to stdout and its stderr to stderr. The daemon keeps the end of each.

    Usage: boxwood logs [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
      -f, --follow
              Continue with new output until the process exits

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood logs tools web
      boxwood logs -f tools web             Follow until the process exits
      boxwood logs tools web 2>/dev/null    Show stdout only
      boxwood logs tools web -o json        {"stdout": …, "stderr": …}
    "#);
}

#[test]
fn kill() {
    insta::assert_snapshot!(help(&["kill"]), @r"
    Send a signal to a managed process, or kill a command

    To let a managed process end properly, use `boxwood stop`.

    Usage: boxwood kill [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
      -s, --signal <SIGNAL>
              Name or number of the signal

              [default: KILL]

          --exec <ID>
              Kill the command with this number, and its children

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood kill tools web                        Send KILL
      boxwood kill -s HUP tools web                 Send HUP, which makes many programs reload
      boxwood kill --exec 1718 build                Kill a command; `boxwood ps build` shows its number
    ");
}

#[test]
fn stop() {
    insta::assert_snapshot!(help(&["stop"]), @r"
    Stop managed processes

    Closes stdin of the process, sends TERM to it and its children, and after a few seconds KILL to
    those that still run. The session and its files are kept; `boxwood rm` removes them.

    Usage: boxwood stop [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process [default: all running ones]

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood stop tools web        Stop one process
      boxwood stop tools            Stop all running processes of the session
    ");
}
