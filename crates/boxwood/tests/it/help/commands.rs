//! Help texts: verbs that run a command. A change here is a change of what people read.

use crate::support::command::help;

#[test]
fn run() {
    insta::assert_snapshot!(help(&["run"]), @r#"
    Run a command in a new box, without a daemon

    Makes a box, runs the command in it, shows its output as it is written, and removes the box with
    everything private in it. You are the operator here: directories you name may be mounted, except
    those that hold the system's or Boxwood's own secrets.

    Usage: boxwood run [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...
              Program and its arguments

    Options:
      -i, --interactive
              Pass our stdin to the command

      -t, --tty
              Give the command a terminal

          --rm
              Remove the box at the end; always so, accepted by habit

          --config <FILE>
              Configuration file

              [env: BOXWOOD_CONFIG]

      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` takes the value from here

      -w, --workdir <DIR>
              Directory to start in

          --timeout <DURATION>
              Stop the command after this long, as in `30s` or `2m`

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
      boxwood run -- python3 -c 'print(6 * 7)'
      boxwood run --workspace . -- make test            This directory as /workspace
      boxwood run -v ~/data:/data:ro -- ls /data
      boxwood run --network -- pip install requests
      boxwood run --timeout 30s --memory 512m --pids 64 -- ./untrusted
      boxwood run -it -- bash
      boxwood run -o json -- id                         The result as one JSON object

    The words after -- are the program and its arguments; no shell looks at them. Ctrl-C goes to the
    command, as does TERM; a third one kills it. Without --timeout the command may run as long as it
    likes, unless the profile says otherwise.

    Exit codes: the command's own, 128+n when signal n ended it; 124 timeout; 125 Boxwood failed.
    "#);
}

#[test]
fn exec() {
    insta::assert_snapshot!(help(&["exec"]), @r#"
    Run a command in a session

    Creates the session when it does not exist; the flags under Box then say how. Output is shown as it
    is written. The session stays, with its files, until `boxwood rm` or until it has been idle for the
    daemon's session TTL.

    Usage: boxwood exec [OPTIONS] <SESSION> -- <CMD>...

    Arguments:
      <SESSION>
              Name of the session

      <CMD>...
              Program and its arguments

    Options:
      -i, --interactive
              Pass our stdin to the command

      -t, --tty
              Give the command a terminal

      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` takes the value from here

      -w, --workdir <DIR>
              Directory to start in

          --timeout <DURATION>
              Stop the command after this long, as in `30s` or `2m`

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
      boxwood exec build -- make -j2
      boxwood exec build --timeout 2m -e CI=1 -- sh -c 'make && ./test'
      tar c src | boxwood exec -i build -- tar x
      boxwood exec -t build -- top
      boxwood exec build -o json -- ls            The result as one JSON object

    The words after -- are the program and its arguments; no shell looks at them. Ctrl-C goes to the
    command; a third one kills it. When the daemon is restarted the command goes on, and so does its
    output. When the connection is lost for good the command is stopped.

    Exit codes: the command's own, 128+n when signal n ended it; 124 timeout; 125 Boxwood failed.
    "#);
}

#[test]
fn sh() {
    insta::assert_snapshot!(help(&["sh"]), @r#"
    Open a shell in a session

    Creates the session when it does not exist. Gives you a terminal in the box that follows your
    window's size, with bash where the box has it and sh otherwise.

    Usage: boxwood sh [OPTIONS] <SESSION> [-- <CMD>...]

    Arguments:
      <SESSION>
              Name of the session

      [CMD]...
              Program to run in place of a shell

    Options:
      -h, --help
              Print help (see a summary with '-h')

    Command:
      -e, --env <KEY[=VALUE]>
              Set an environment variable; repeatable. `-e KEY` takes the value from here

      -w, --workdir <DIR>
              Directory to start in

          --timeout <DURATION>
              Stop the command after this long, as in `30s` or `2m`

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
      boxwood sh build
      boxwood sh scratch --network --memory 2g
      boxwood sh build -- python3                 Another program than a shell

    Leave with `exit` or Ctrl-D. Your terminal is put back as it was, however it ends.
    "#);
}
