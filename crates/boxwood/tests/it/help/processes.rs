//! Help texts: verbs about managed processes. A change here is a change of what people read.

use crate::support::command::help;

#[test]
fn ps() {
    insta::assert_snapshot!(help(&["ps"]), @r#"
    List what runs in a session

    Without a session it lists the sessions.

    Usage: boxwood ps [OPTIONS] [SESSION]

    Arguments:
      [SESSION]
              Name of the session

    Options:
          --execs
              Its commands only, also those that ended not long ago

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood ps                    The sessions, like `boxwood ls`
      boxwood ps tools              Managed processes and running commands of the session `tools`
      boxwood ps --execs tools      Its commands, also those that ended not long ago
      boxwood ps tools -o json      Its managed processes
      boxwood ps --execs tools -o json
    "#);
}

#[test]
fn start() {
    insta::assert_snapshot!(help(&["start"]), @r#"
    Start a managed process in a session

    A managed process lives on after this command ends: a server that speaks over its stdin and stdout,
    for example. A session can have many, each under its own id. Creates the session when it does not
    exist.

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
              Set an environment variable; repeatable. `-e KEY` takes the value from here

      -w, --workdir <DIR>
              Directory to start in

              [default: /workspace]

      -h, --help
              Print help (see a summary with '-h')

    Box:
          --network
              Let the box reach the network

              Without it the box has a loopback interface and nothing else. With it the box gets a
              network of its own: outwards only, never to this machine, other boxes or metadata
              addresses.

          --profile <NAME>
              Profile to judge by (see `boxwood profiles`)

      -v, --volume <HOST:/PATH[:ro]>
              Mount a host directory or file; repeatable

              Directories that hold the system's or Boxwood's own secrets are always refused.

          --workspace <DIR[:ro]>
              Host directory to use as /workspace; private and empty when left out

          --skill <NAME>
              Skill of the store to have under /workspace/.skills, read-only; repeatable

              Also in a session that exists: the skill appears in its box while it runs.

          --image <NAME>
              Root file system, by the name the operator gave it; the host's own when left out

      -m, --memory <SIZE>
              Most memory the box may use, as in `512m`

          --cpus <N>
              Most processor time the box may use, in cores

          --pids <N>
              Most processes in the box

          --disk <SIZE>
              Size of the private workspace and home, as in `1g`

          --read-only
              Make everything outside of the workspace, home and /tmp read-only

          --backend <NAME>
              What runs the box: a backend's name, or `auto` or `local` for the first that works

              A named one is used or the command fails. `boxwood doctor` shows which there are.

          --require <MECHANISM>
              Refuse to start without this mechanism, as in `seccomp`; repeatable

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood start tools --id fs -- npx -y @modelcontextprotocol/server-filesystem /workspace
      boxwood attach tools fs           Speak to it, line by line
      boxwood logs tools fs             What it wrote
      boxwood stop tools fs             End it
    "#);
}

#[test]
fn attach() {
    insta::assert_snapshot!(help(&["attach"]), @r#"
    Connect to the stdin and stdout of a managed process

    Your input goes to the process, and its output to you, starting with the output that is still
    unread. Its stderr is in `boxwood logs`.

    Usage: boxwood attach [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
          --no-stdin
              Do not read our stdin

          --since <OFFSET>
              Start after this many bytes of its output, or with the unread output

              [default: now]

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood attach tools fs
      echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | boxwood attach tools fs
      boxwood attach --no-stdin tools fs        Watch only
      boxwood attach --since 0 tools fs         From its first byte, if that is still kept

    Ctrl-C lets go; the process lives on. The end of your input does not let go: output goes on. One
    process has one attachment at a time: a second one waits until the first ends. When the daemon is
    restarted the attachment goes on by itself; nothing is lost or comes twice.
    "#);
}

#[test]
fn logs() {
    insta::assert_snapshot!(help(&["logs"]), @r#"
    Show what a managed process wrote lately

    Its stdout goes to stdout and its stderr to stderr. The daemon keeps the last part of each.

    Usage: boxwood logs [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
      -f, --follow
              Go on with what it writes, until it exits

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood logs tools web
      boxwood logs -f tools web             Go on until it exits
      boxwood logs tools web 2>/dev/null    Its stdout only
      boxwood logs tools web -o json        {"stdout": …, "stderr": …}
    "#);
}

#[test]
fn kill() {
    insta::assert_snapshot!(help(&["kill"]), @r#"
    Send a signal to a managed process, or kill a command

    To end a managed process in good order use `boxwood stop`.

    Usage: boxwood kill [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process

              [default: default]

    Options:
      -s, --signal <SIGNAL>
              Signal by name or number

              [default: KILL]

          --exec <ID>
              Kill the command of this number, with everything it started

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood kill tools web                        KILL
      boxwood kill -s HUP tools web                 Reload, for programs that do
      boxwood kill --exec 1718 build                A command, as `boxwood ps build` shows it
    "#);
}

#[test]
fn stop() {
    insta::assert_snapshot!(help(&["stop"]), @r#"
    Stop managed processes

    Closes the process's stdin, sends TERM to it and all it has started, and KILL to what is left after
    a few seconds. The session and its files stay; `boxwood rm` removes them.

    Usage: boxwood stop [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of the process; all of them when left out

    Options:
      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood stop tools web        One process
      boxwood stop tools            Every running process of the session
      boxwood rm tools              The session itself
    "#);
}
