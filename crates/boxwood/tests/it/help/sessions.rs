//! Help texts: verbs about sessions. A change here is a change of what people read.

use crate::support::command::help;

#[test]
fn create() {
    insta::assert_snapshot!(help(&["create"]), @r#"
    Create a session

    Prints the session's name once its box is up. A session that exists and fits is left as it is; one
    that differs is a conflict, and the answer names the field.

    Usage: boxwood create [OPTIONS] <SESSION>

    Arguments:
      <SESSION>
              Name of the session

    Options:
          --persistent
              Keep the session when it is idle

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
      boxwood create build --memory 2g --network
      boxwood create review --workspace ~/src/project:ro --profile offline_readonly
    "#);
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["ls"]), @r#"
    List sessions

    Shows every session the daemon holds, with its limits and how long it has been idle. Idle sessions
    are removed after the daemon's session TTL.

    Usage: boxwood ls [OPTIONS]

    Options:
      -q, --quiet
              Names only, one per line

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
      boxwood ls                    A table, newest last
      boxwood ls -q                 Names only, one per line
      boxwood ls -o json            Everything
    "#);
}

#[test]
fn inspect() {
    insta::assert_snapshot!(help(&["inspect"]), @r#"
    Show everything about a session, a managed process or a command

    Limits, mounts, and the isolation label: what really keeps the box apart, what this machine could
    not give, and why.

    Usage: boxwood inspect [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of a managed process

    Options:
          --exec <ID>
              Number of a command, as `boxwood ps --execs` shows it

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
      boxwood inspect build
      boxwood inspect tools web                     One managed process
      boxwood inspect --exec 1718 build             One command, with its result once it has ended
      boxwood inspect build -o json | jq .isolation
    "#);
}

#[test]
fn cp() {
    insta::assert_snapshot!(help(&["cp"]), @r#"
    Copy files between this machine and a session

    One side is `SESSION:/path`. Directories are copied with everything in them. Symbolic links inside a
    directory are left out, and said so, in both directions.

    Usage: boxwood cp [OPTIONS] <SOURCE> <TARGET>

    Arguments:
      <SOURCE>
              From: a path, or `SESSION:/path`

      <TARGET>
              To: a path, or `SESSION:/path`

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
      boxwood cp report.csv build:/workspace/               Into the session `build`
      boxwood cp build:/workspace/out.txt .                 Out of it
      boxwood cp src build:/workspace                       A directory, as /workspace/src
      boxwood cp src/. build:/workspace                     What is in it

    A path on this machine with `:/` in it is written with `./` in front.
    "#);
}

#[test]
fn rm() {
    insta::assert_snapshot!(help(&["rm"]), @r#"
    Remove sessions

    Kills everything in the box and removes it with its private files. Mounted host directories stay.

    Usage: boxwood rm [OPTIONS] [SESSION]...

    Arguments:
      [SESSION]...
              Names of the sessions

    Options:
      -a, --all
              Every session of the daemon

      -f, --force
              A session that does not exist is not an error

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
      boxwood rm build
      boxwood rm -f build test          No error when they are gone already
      boxwood rm --all
    "#);
}
