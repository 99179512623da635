boxwood_project=@PROJECT@
boxwood_python="$(command -v python3 || command -v python)" || {
  echo "boxwood: $boxwood_project is a Python project and this box has no python3; use an image that has it" >&2
  exit 1
}
boxwood_root="${HOME:-/tmp}/.boxwood/python"
if ! mkdir -p "$boxwood_root" 2>/dev/null || ! [ -w "$boxwood_root" ]; then
  boxwood_root="/tmp/.boxwood/python"
fi
boxwood_helper='@HELPER@'
boxwood_plan="$("$boxwood_python" -I -c "$boxwood_helper" plan "$boxwood_project" "$boxwood_root" </dev/null)" || {
  echo "boxwood: failed to read the manifests of $boxwood_project" >&2
  exit 1
}
boxwood_env="${boxwood_plan#* }"
if [ "${boxwood_plan%% *}" != ready ]; then
  (
    fail() {
      echo "boxwood: $1" >&2
      exit 1
    }
    mkdir -p "$boxwood_root" || fail "failed to create $boxwood_root"
    lock="$boxwood_env.lock"
    waited=0
    pause() {
      [ "$waited" -lt @WAIT@ ] ||
        fail "another command has been building the Python environment of $boxwood_project for @WAIT@ s; try again later, or remove $1 if no command is building it"
      waited=$((waited + 1))
      sleep 1
    }
    if command -v flock >/dev/null 2>&1; then
      exec 9>"$lock" || fail "failed to open $lock"
      until flock -n 9; do
        pause "$lock"
      done
    else
      until mkdir "$lock.d" 2>/dev/null; do
        holder="$(cat "$lock.d/pid" 2>/dev/null)"
        if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null && mkdir "$lock.break" 2>/dev/null; then
          # Only one process gets here, so a new lock is not mistaken for the stale one.
          holder="$(cat "$lock.d/pid" 2>/dev/null)"
          if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
            rm -rf "$lock.d"
          fi
          rmdir "$lock.break"
        else
          pause "$lock.d"
        fi
      done
      trap 'rm -rf "$lock.d"' EXIT
      trap 'exit 1' HUP INT TERM
      echo "$$" >"$lock.d/pid"
    fi
    # Another process may have built it in the meantime.
    plan="$("$boxwood_python" -I -c "$boxwood_helper" plan "$boxwood_project" "$boxwood_root")" || exit 1
    [ "${plan%% *}" != ready ] || exit 0
    echo "boxwood: building the Python environment of $boxwood_project, once; call again with a larger timeout_sec if the time is not enough" >&2
    discard() {
      rm -rf "$boxwood_env"
      fail "$1"
    }
    rm -rf "$boxwood_env"
    "$boxwood_python" -m venv "$boxwood_env" >&2 ||
      discard "failed to create the Python environment of $boxwood_project; the image needs the Python modules venv and ensurepip"
    install() {
      "$boxwood_env/bin/python" -m pip install --disable-pip-version-check --no-input --no-cache-dir "$@" >&2 ||
        discard "failed to install the dependencies of $boxwood_project; pip reports the cause above. The profile of the box must allow network access"
    }
    if [ -f "$boxwood_project/requirements.txt" ]; then
      install -r "$boxwood_project/requirements.txt"
    elif [ "${plan%% *}" = package ]; then
      # The package is mounted read-only, and a build writes beside its sources.
      "$boxwood_python" -I -c "$boxwood_helper" copy "$boxwood_project" "$boxwood_env/.source" ||
        discard "failed to copy $boxwood_project"
      install "$boxwood_env/.source"
      rm -rf "$boxwood_env/.source"
    fi
    "$boxwood_python" -I -c "$boxwood_helper" done "$boxwood_project" "$boxwood_root" ||
      discard "failed to write $boxwood_env"
  ) </dev/null || exit 1
fi
VIRTUAL_ENV="$boxwood_env"
PATH="$boxwood_env/bin:$PATH"
export VIRTUAL_ENV PATH
unset PYTHONHOME boxwood_project boxwood_python boxwood_root boxwood_helper boxwood_plan boxwood_env
