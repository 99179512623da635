//! Help texts: verbs about the daemon and this machine. A change here is a change of what people read.

use crate::support::command::help;

#[test]
fn serve() {
    insta::assert_snapshot!(help(&["serve"]), @r#"
    Run the daemon

    Listens on the loopback address by default. Its own user and root need no token there, other users
    do (`boxwood token`). Also listens on a socket in its run directory.

    Usage: boxwood serve [OPTIONS]

    Options:
          --listen <ADDR:PORT>
              Address and port to listen on, or `none` for the socket alone [default: 127.0.0.1:5410]

              [env: BOXWOOD_LISTEN]

          --state-dir <DIR>
              Directory for what outlives the daemon

              [env: BOXWOOD_STATE_DIR]

          --backend <NAME>
              What runs the boxes: auto, local, native, docker, podman, nsjail or e2b [default: auto]

              `auto` and `local` take the first that works, in that order, whenever a session is made; a
              named one is used or nothing is. Profiles and requests may name another.

              [env: BOXWOOD_BACKEND]

          --config <FILE>
              Configuration file

              [env: BOXWOOD_CONFIG]

          --stdio
              Speak LangBot's action RPC on stdin and stdout, and end with stdin

              For a LangBot that starts its own runtime. Everything else, the relay above all, is served
              on the port as always; the line for scripts goes to stderr.

          --until-stdin-closes
              End with stdin, from which nothing is read

              For a program that starts a daemon of its own: however that program ends, its daemon ends
              as if told to stop. Another daemon cannot take over from it.

          --takeover
              Take over from the daemon that runs on the same state directory

              It hands over its sockets, lets running requests end, leaves its boxes as they are and
              ends. No request is refused meanwhile. Without such a daemon this one starts as usual.

          --on-shutdown <MODE>
              What a daemon that is told to stop does with boxes [default: stop]

              `stop` removes them, `keep` leaves them to the next daemon, `stop_ephemeral` only those of
              persistent sessions.

              [env: BOXWOOD_SHUTDOWN__BOXES]

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
      boxwood serve
      boxwood serve --listen 127.0.0.1:0 --state-dir /tmp/b     A second daemon on a free port
      boxwood serve --config /etc/boxwood/config.toml
      boxwood serve --stdio                                     As the child of a LangBot
      boxwood serve --until-stdin-closes --listen none          As the child of any other program
      boxwood serve --takeover                                  In the place of the running daemon
      boxwood serve --on-shutdown keep                          Boxes run on until the next start

    Prints one line on stdout when it accepts connections, and another when it found boxes of an
    earlier daemon:
      boxwood: listening on http://127.0.0.1:5410 (native backend)
      boxwood: 3 sessions adopted
    Logs go to stderr. SIGTERM and Ctrl-C drain: no new connections, running requests may end, then
    every box is stopped, or what --on-shutdown says. A second one does not wait for requests. A daemon
    that is killed leaves its boxes to the next one on the same state directory.

    Every setting of the configuration file is also a variable, as in BOXWOOD_SESSION__TTL_SEC=600.
    "#);
}

#[test]
fn doctor() {
    insta::assert_snapshot!(help(&["doctor"]), @r#"
    Say what keeps boxes apart here, and what is missing

    Tries every isolation mechanism by using it. For each it says whether it is in force, why it matters
    and, where it is missing, the command that gets it. Boxes start without what is only missing, and
    their label says so; they do not start without what is fatal. Below that it lists the backends:
    which of them can be used, and what the others want; and what MCP servers find here.

    Usage: boxwood doctor [OPTIONS]

    Options:
          --backend <NAME>
              Backend to look at; the one that boxes get when left out

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
      boxwood doctor                                  This machine, as this user; no daemon needed
      boxwood doctor --backend docker                 Everything about one backend
      boxwood doctor --url http://host:5410           What a daemon finds on its machine
      boxwood doctor -o json | jq '.findings[] | select(.state != "works")'

    Exit codes: 0 boxes can start; 1 none can.
    "#);
}

#[test]
fn profiles() {
    insta::assert_snapshot!(help(&["profiles"]), @r#"
    List profiles

    A profile gives a box its defaults, the fields that no caller can change (LOCKED) and the isolation
    without which it does not start (REQUIRES). Operators define more of them in the configuration file.

    Usage: boxwood profiles [OPTIONS]

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
      boxwood profiles
      boxwood profiles -o json | jq '.[] | select(.name == "default")'
    "#);
}

#[test]
fn events() {
    insta::assert_snapshot!(help(&["events"]), @r#"
    Watch what happens

    Prints sessions coming and going, commands starting and finishing, and managed processes, until you
    press Ctrl-C or the daemon goes.

    Usage: boxwood events [OPTIONS]

    Options:
          --session <SESSION>
              Only this session

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
      boxwood events
      boxwood events --session build
      boxwood events -o json | jq .event            One JSON object per line
    "#);
}

#[test]
fn token() {
    insta::assert_snapshot!(help(&["token"]), @r#"
    Manage access tokens

    On the same machine the daemon's own user and root need no token. Other users send one, as
    `Authorization: Bearer` or `X-API-Key`; client verbs take it from `BOXWOOD_TOKEN`.

    Usage: boxwood token [OPTIONS] <COMMAND>

    Commands:
      create  Make a token and print it
      ls      List tokens by name
      rm      Remove tokens

    Options:
          --state-dir <DIR>
              State directory of the daemon

              [env: BOXWOOD_STATE_DIR]

          --config <FILE>
              Configuration file of the daemon

              [env: BOXWOOD_CONFIG]

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
      boxwood token create ci           Prints the token, once; only its hash is kept
      export BOXWOOD_TOKEN=$(boxwood token create laptop)
      boxwood token ls
      boxwood token rm ci               It stops working at once

    Run it as the daemon's own user: tokens are kept in the daemon's state directory.
    "#);
}

#[test]
fn completion() {
    insta::assert_snapshot!(help(&["completion"]), @r#"
    Print a completion script for a shell

    The script goes to stdout; put it where your shell looks for completions.

    Usage: boxwood completion [OPTIONS] <SHELL>

    Arguments:
      <SHELL>
              Which shell

              [possible values: bash, elvish, fish, powershell, zsh]

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
      boxwood completion bash > /etc/bash_completion.d/boxwood
      boxwood completion zsh > "${fpath[1]}/_boxwood"
      boxwood completion fish > ~/.config/fish/completions/boxwood.fish
    "#);
}

#[test]
fn token_create() {
    insta::assert_snapshot!(help(&["token", "create"]), @r#"
    Make a token and print it

    This is the only time it can be seen.

    Usage: boxwood token create [OPTIONS] <NAME>

    Arguments:
      <NAME>
              What the token is for

    Options:
          --state-dir <DIR>
              State directory of the daemon

              [env: BOXWOOD_STATE_DIR]

          --config <FILE>
              Configuration file of the daemon

              [env: BOXWOOD_CONFIG]

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
    "#);
}

#[test]
fn token_ls() {
    insta::assert_snapshot!(help(&["token", "ls"]), @r#"
    List tokens by name

    Usage: boxwood token ls [OPTIONS]

    Options:
          --state-dir <DIR>
              State directory of the daemon

              [env: BOXWOOD_STATE_DIR]

          --config <FILE>
              Configuration file of the daemon

              [env: BOXWOOD_CONFIG]

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
    "#);
}

#[test]
fn token_rm() {
    insta::assert_snapshot!(help(&["token", "rm"]), @r#"
    Remove tokens

    Usage: boxwood token rm [OPTIONS] <NAME>...

    Arguments:
      <NAME>...
              Names of the tokens

    Options:
          --state-dir <DIR>
              State directory of the daemon

              [env: BOXWOOD_STATE_DIR]

          --config <FILE>
              Configuration file of the daemon

              [env: BOXWOOD_CONFIG]

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
    "#);
}
