//! Help texts: verbs about the daemon and this machine. A change here changes what users read.

use crate::support::command::help;

#[test]
fn serve() {
    insta::assert_snapshot!(help(&["serve"]), @r"
    Run the daemon

    Listens on the loopback address by default, and on a socket in its run directory. Its own user and
    root need no token there; other users do (`boxwood token`).

    Usage: boxwood serve [OPTIONS]

    Options:
          --listen <ADDR:PORT>
              Address and port to listen on, or `none` for the socket only [default: 127.0.0.1:5410]

              [env: BOXWOOD_LISTEN]

          --state-dir <DIR>
              Directory for persistent data

              [env: BOXWOOD_STATE_DIR]

          --backend <NAME>
              Backend of the boxes: auto, local, native, docker, podman or nsjail [default: auto]

              `auto` and `local` use the first that works when a session is created, in the order
              native, docker, podman, nsjail. A named backend has no fallback. Profiles and requests can
              name another.

              [env: BOXWOOD_BACKEND]

          --config <FILE>
              Configuration file

              [env: BOXWOOD_CONFIG]

          --stdio
              Use LangBot's action RPC on stdin and stdout, and stop when stdin is closed

              For LangBot installations that start their own runtime. The other protocols are served on
              the port as usual; the startup line is printed on stderr.

          --until-stdin-closes
              Stop when stdin is closed

              For programs that start their own daemon: when the program ends, for any reason, its
              daemon stops like on SIGTERM. Another daemon cannot take over from it.

          --takeover
              Take over from the daemon that uses the same state directory

              The other daemon passes on its sockets and boxes, finishes its requests and stops. No
              request is refused meanwhile. If there is no such daemon, this one starts as usual.

          --on-shutdown <MODE>
              What happens to boxes when the daemon stops [default: stop]

              `stop` removes them, `keep` keeps them for the next daemon, `stop_ephemeral` keeps only
              those of persistent sessions.

              [env: BOXWOOD_SHUTDOWN__BOXES]

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
      boxwood serve
      boxwood serve --listen 127.0.0.1:0 --state-dir /tmp/b     Start a second daemon on a free port
      boxwood serve --config /etc/boxwood/config.toml
      boxwood serve --stdio                                     Run as a child of LangBot
      boxwood serve --until-stdin-closes --listen none          Run as a child of another program
      boxwood serve --takeover                                  Replace the running daemon
      boxwood serve --on-shutdown keep                          Keep boxes running for the next daemon

    Prints a line on stdout when it accepts connections, and another if it adopted boxes of an earlier
    daemon:
      boxwood: listening on http://127.0.0.1:5410 (native backend)
      boxwood: 3 sessions adopted
    Logs are written to stderr. On SIGTERM and Ctrl-C the daemon accepts no new connections, waits for
    running requests, and stops all boxes unless --on-shutdown says otherwise. A second signal ends the
    wait. The boxes of a daemon that was killed are adopted by the next one with the same state
    directory.

    Every setting of the configuration file can also be set by a variable, such as
    BOXWOOD_SESSION__TTL_SEC=600.
    ");
}

#[test]
fn doctor() {
    insta::assert_snapshot!(help(&["doctor"]), @r#"
    Check which isolation mechanisms and backends work

    Tests every isolation mechanism by using it, and says why it matters and, if it is missing, how to
    enable it. Boxes start without a mechanism that is only missing, and their isolation label says so;
    they do not start if the mechanism is fatal. Also lists the backends, with the reason why a backend
    cannot be used, and the programs that MCP servers need.

    Usage: boxwood doctor [OPTIONS]

    Options:
          --backend <NAME>
              Backend to check [default: the one that boxes use]

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
      boxwood doctor                                  Check this machine; no daemon needed
      boxwood doctor --backend docker                 Check one backend
      boxwood doctor --url http://host:5410           Check the machine of a daemon
      boxwood doctor -o json | jq '.findings[] | select(.state != "works")'

    Exit codes: 0 boxes can start; 1 no box can start.
    "#);
}

#[test]
fn profiles() {
    insta::assert_snapshot!(help(&["profiles"]), @r#"
    List profiles

    A profile contains defaults for boxes, fields that requests cannot change (LOCKED), and mechanisms
    without which a box does not start (REQUIRES). More profiles can be defined in the daemon's
    configuration file.

    Usage: boxwood profiles [OPTIONS]

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
      boxwood profiles
      boxwood profiles -o json | jq '.[] | select(.name == "default")'
    "#);
}

#[test]
fn events() {
    insta::assert_snapshot!(help(&["events"]), @r"
    Watch events of the daemon

    Prints when sessions are created and removed, when commands start and finish, and changes of managed
    processes and MCP servers, until you press Ctrl-C or the daemon stops.

    Usage: boxwood events [OPTIONS]

    Options:
          --session <SESSION>
              Show only events of this session

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
      boxwood events
      boxwood events --session build
      boxwood events -o json | jq .event            One JSON object per line
    ");
}

#[test]
fn token() {
    insta::assert_snapshot!(help(&["token"]), @r"
    Manage access tokens

    On the same machine the daemon's own user and root need no token. Other users send one, as
    `Authorization: Bearer` or `X-API-Key`; the `boxwood` command takes it from `BOXWOOD_TOKEN`.

    Usage: boxwood token [OPTIONS] <COMMAND>

    Commands:
      create  Create a token and print it
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
      boxwood token create ci           Print a new token. It cannot be shown again
      export BOXWOOD_TOKEN=$(boxwood token create laptop)
      boxwood token ls
      boxwood token rm ci               Revoke a token immediately

    Run this command as the daemon's user: tokens are stored in the daemon's state directory.
    ");
}

#[test]
fn completion() {
    insta::assert_snapshot!(help(&["completion"]), @r#"
    Print a completion script for a shell

    Write the output to the directory where your shell looks for completions.

    Usage: boxwood completion [OPTIONS] <SHELL>

    Arguments:
      <SHELL>
              The shell

              [possible values: bash, elvish, fish, powershell, zsh]

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
      boxwood completion bash > /etc/bash_completion.d/boxwood
      boxwood completion zsh > "${fpath[1]}/_boxwood"
      boxwood completion fish > ~/.config/fish/completions/boxwood.fish
    "#);
}

#[test]
fn token_create() {
    insta::assert_snapshot!(help(&["token", "create"]), @r"
    Create a token and print it

    Only its hash is stored, so it cannot be shown again.

    Usage: boxwood token create [OPTIONS] <NAME>

    Arguments:
      <NAME>
              Name of the token, such as its purpose

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
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]
    ");
}

#[test]
fn token_ls() {
    insta::assert_snapshot!(help(&["token", "ls"]), @r"
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
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]
    ");
}

#[test]
fn token_rm() {
    insta::assert_snapshot!(help(&["token", "rm"]), @r"
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
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]
    ");
}
