//! Help texts: verbs about sessions. A change here changes what users read.

use crate::support::command::help;

#[test]
fn create() {
    insta::assert_snapshot!(help(&["create"]), @r"
    Create a session

    Prints the name of the session when its box is running. An existing session with the same
    configuration is kept; one that differs is an error, which names the field.

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
      boxwood create build --memory 2g --network
      boxwood create review --workspace ~/src/project:ro --profile offline_readonly
    ");
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["ls"]), @r"
    List sessions

    Shows every session of the daemon, with its limits and when it was last used. Idle sessions are
    removed after the daemon's session TTL.

    Usage: boxwood ls [OPTIONS]

    Options:
      -q, --quiet
              Print only names, one per line

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
      boxwood ls                    A table, newest last
      boxwood ls -q                 Only names
      boxwood ls -o json            All details
    ");
}

#[test]
fn inspect() {
    insta::assert_snapshot!(help(&["inspect"]), @r"
    Show everything about a session, a managed process or a command

    Shows limits, mounts and the isolation label: the mechanisms that isolate the box, and those that
    are missing on this machine, with the reason.

    Usage: boxwood inspect [OPTIONS] <SESSION> [PROCESS]

    Arguments:
      <SESSION>
              Name of the session

      [PROCESS]
              Name of a managed process

    Options:
          --exec <ID>
              Number of a command, as shown by `boxwood ps --execs`

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
      boxwood inspect build
      boxwood inspect tools web                     Show a managed process
      boxwood inspect --exec 1718 build             Show a command, and its result if it has ended
      boxwood inspect build -o json | jq .isolation
    ");
}

#[test]
fn cp() {
    insta::assert_snapshot!(help(&["cp"]), @r"
    Copy files between this machine and a session

    One side is `SESSION:/path`. Directories are copied recursively. Symbolic links inside a directory
    are skipped with a message, in both directions.

    Usage: boxwood cp [OPTIONS] <SOURCE> <TARGET>

    Arguments:
      <SOURCE>
              Source: a path, or `SESSION:/path`

      <TARGET>
              Destination: a path, or `SESSION:/path`

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
      boxwood cp report.csv build:/workspace/               Copy a file into the session `build`
      boxwood cp build:/workspace/out.txt .                 Copy a file from it
      boxwood cp src build:/workspace                       Copy a directory, as /workspace/src
      boxwood cp src/. build:/workspace                     Copy the contents of a directory

    If a path on this machine contains `:/`, prefix it with `./`.
    ");
}

#[test]
fn rm() {
    insta::assert_snapshot!(help(&["rm"]), @r"
    Remove sessions

    Kills all processes in the box and removes it with its private files. Mounted host directories are
    kept.

    Usage: boxwood rm [OPTIONS] [SESSION]...

    Arguments:
      [SESSION]...
              Names of the sessions

    Options:
      -a, --all
              Remove all sessions of the daemon

      -f, --force
              Ignore sessions that do not exist

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
      boxwood rm build
      boxwood rm -f build test          Ignore sessions that do not exist
      boxwood rm --all
    ");
}
