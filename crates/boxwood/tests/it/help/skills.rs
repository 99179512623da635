//! Help texts: `skill` and its actions. A change here is a change of what people read.

use crate::support::command::help;

#[test]
fn the_verb() {
    insta::assert_snapshot!(help(&["skill"]), @r#"
    Manage skills

    A skill is a directory with a `SKILL.md`: instructions for an agent, and the scripts and files they
    speak of. The daemon keeps skills in its store. A box that is given one with `--skill NAME` has it
    under `/workspace/.skills/NAME`, read-only.

    Usage: boxwood skill [OPTIONS] <COMMAND>

    Commands:
      ls        List skills [alias: list]
      show      Show a skill with its instructions
      add       Put skills into the daemon's store
      rm        Remove skills
      files     List the files of a skill
      cat       Print a file of a skill
      edit      Change a file of a skill
      export    Write a skill as a zip archive
      validate  Check a skill against the Agent Skills rules

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
      boxwood skill add ./pdf                       A directory with a SKILL.md, into the store
      boxwood skill add skills.zip --all            Everything in an archive
      boxwood skill ls
      boxwood skill show pdf
      boxwood skill edit pdf SKILL.md               In your editor
      boxwood exec build --skill pdf -- ls /workspace/.skills/pdf
      boxwood skill rm pdf

    `boxwood skill ACTION --help` has examples for every action.
    "#);
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["skill", "ls"]), @r#"
    List skills

    The one changed last comes first. Packages that cannot be read are told on stderr.

    Usage: boxwood skill ls [OPTIONS]

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
      boxwood skill ls
      boxwood skill ls -q                   Names only, one per line
      boxwood skill ls -o json              Everything, with warnings and what cannot be read
    "#);
}

#[test]
fn show() {
    insta::assert_snapshot!(help(&["skill", "show"]), @r#"
    Show a skill with its instructions

    Also says where it departs from the Agent Skills rules. Departures are warnings: the skill works.

    Usage: boxwood skill show [OPTIONS] <NAME>

    Arguments:
      <NAME>
              Name of the skill

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
      boxwood skill show pdf
      boxwood skill show pdf -o json | jq -r .instructions
    "#);
}

#[test]
fn add() {
    insta::assert_snapshot!(help(&["skill", "add"]), @r#"
    Put skills into the daemon's store

    Takes a directory or a zip archive and prints the names of the skills that are now in the store. A
    directory is packed here and sent, so the daemon may be on another machine; symbolic links and
    `.git` stay behind. Where there are several skills, say which are meant. It is all or nothing: one
    whose name is taken keeps the others out as well.

    Usage: boxwood skill add [OPTIONS] <PATH>

    Arguments:
      <PATH>
              Directory or zip archive; `-` is an archive on stdin

    Options:
          --name <NAME>
              What the skill shall be called, instead of what its SKILL.md says

          --select <SUBDIR>
              Take this one, by its directory below PATH; repeatable

          --all
              Take every skill there is

      -n, --dry-run
              Only say what is there

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
      boxwood skill add ./pdf                       A directory with a SKILL.md
      boxwood skill add pdf.zip                     An archive of one
      boxwood skill add ./skills --dry-run          What is in it
      boxwood skill add ./skills --select pdf --select office/csv
      boxwood skill add ./skills --all
      boxwood skill add ./pdf --name pdf-next       Under another name
      curl -sL https://example.org/pdf.zip | boxwood skill add - --name pdf
    "#);
}

#[test]
fn rm() {
    insta::assert_snapshot!(help(&["skill", "rm"]), @r#"
    Remove skills

    Removes the package with every file in it. Boxes that have it mounted see an empty directory.

    Usage: boxwood skill rm [OPTIONS] <NAME>...

    Arguments:
      <NAME>...
              Names of the skills

    Options:
      -f, --force
              A skill that does not exist is not an error

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
      boxwood skill rm pdf
      boxwood skill rm -f pdf csv           No error when they are gone already
    "#);
}

#[test]
fn files() {
    insta::assert_snapshot!(help(&["skill", "files"]), @r#"
    List the files of a skill

    One directory of the package at a time; a name with `/` at its end is a directory.

    Usage: boxwood skill files [OPTIONS] <NAME> [PATH]

    Arguments:
      <NAME>
              Name of the skill

      [PATH]
              Directory of the package

              [default: .]

    Options:
      -a, --all
              Entries whose name begins with a dot as well

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
      boxwood skill files pdf
      boxwood skill files pdf scripts
      boxwood skill files -a pdf            Hidden ones as well
    "#);
}

#[test]
fn cat() {
    insta::assert_snapshot!(help(&["skill", "cat"]), @r#"
    Print a file of a skill

    The bytes go to stdout as they are.

    Usage: boxwood skill cat [OPTIONS] <NAME> <FILE>

    Arguments:
      <NAME>
              Name of the skill

      <FILE>
              File of the package

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
      boxwood skill cat pdf SKILL.md
      boxwood skill cat pdf assets/logo.png > logo.png
    "#);
}

#[test]
fn edit() {
    insta::assert_snapshot!(help(&["skill", "edit"]), @r#"
    Change a file of a skill

    Opens the file in your editor and writes it back when you have changed it. The file is replaced in
    one step, and only if it was not changed in the store in the meantime.

    Usage: boxwood skill edit [OPTIONS] <NAME> <FILE> [FROM]

    Arguments:
      <NAME>
              Name of the skill

      <FILE>
              File of the package

      [FROM]
              File with the new contents, or `-` for stdin; without it an editor opens

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
      boxwood skill edit pdf SKILL.md                   In $VISUAL, $EDITOR or vi
      boxwood skill edit pdf scripts/fill.py fill.py    With the contents of a file
      generate | boxwood skill edit pdf data.json -     With what comes from stdin

    A file that does not exist is created, with the directories above it.
    "#);
}

#[test]
fn export() {
    insta::assert_snapshot!(help(&["skill", "export"]), @r#"
    Write a skill as a zip archive

    The archive is what `boxwood skill add` takes. A file appears under its name when it is complete.

    Usage: boxwood skill export [OPTIONS] <NAME> [FILE]

    Arguments:
      <NAME>
              Name of the skill

      [FILE]
              Where to write it; stdout when left out, and with `-`

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
      boxwood skill export pdf pdf.zip
      boxwood skill export pdf > pdf.zip
      boxwood skill export pdf - | ssh other boxwood skill add - --name pdf
    "#);
}

#[test]
fn validate() {
    insta::assert_snapshot!(help(&["skill", "validate"]), @r#"
    Check a skill against the Agent Skills rules

    Errors are what keeps a skill out of the store. Warnings are departures from the rules that other
    programs may not like: the name, the description and its length, unknown fields. What is a path
    (`./pdf`, `pdf.zip`, `/srv/skills/pdf`) is read here; any other word is a skill in the store.

    Usage: boxwood skill validate [OPTIONS] <PATH|NAME>

    Arguments:
      <PATH|NAME>
              Directory, zip archive, or name of a skill

    Options:
          --strict
              Warnings are errors

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
      boxwood skill validate ./pdf                  A directory; no daemon needed
      boxwood skill validate pdf.zip                An archive, with everything in it
      boxwood skill validate pdf                    A skill of the daemon's store
      boxwood skill validate --strict ./pdf         For CI

    Exit codes: 0 it can be used; 1 it cannot, or with --strict it has warnings.
    "#);
}
