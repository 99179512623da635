python=
for candidate in python3 python; do
  if found="$(command -v "$candidate")" &&
    "$found" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
    python="$found"
    break
  fi
done
uv="$(command -v uv)" || uv=
pip=

# uv takes a tenth of pip's time, so it is installed even for one server.
get_uv() {
  if [ -n "$uv" ] || [ -n "$pip" ]; then
    return
  fi
  [ -n "$python" ] ||
    fail "this box has neither uv nor python3 (searched in $box_path): choose an image that has one of them in box.image, or install one of them on the host"
  if "$python" -m pip --version >/dev/null 2>&1; then
    pip="$python"
  elif "$python" -m venv "$tmp/with-pip" >"$tmp/venv.log" 2>&1; then
    pip="$tmp/with-pip/bin/python"
  else
    fail "$python in this box has neither pip nor venv, and there is no uv (searched in $box_path): install uv or python3-venv on the host, or choose an image that has uv or pip in box.image"
  fi
  say "this box has no uv; installing it from the package index"
  if PIP_RETRIES=1 "$pip" -m pip install --quiet --target "$tmp/tools" uv >"$tmp/uv.log" 2>&1 &&
    "$tmp/tools/bin/uv" --version; then
    uv="$tmp/tools/bin/uv"
  elif grep -q 'connection broken by' "$tmp/uv.log"; then
    # pip reports an unreachable index as a missing package.
    why="$(grep 'connection broken by' "$tmp/uv.log" | tail -n 1 | sed "s/.*connection broken by //; s/<[^>]*>: //; s/: \\/simple.*//")"
    fail "the package index cannot be reached from this box: $why. An installation needs network access: check that the profile allows it and that the host can reach the index"
  else
    tail -n 2 "$tmp/uv.log"
    say "uv could not be installed; continuing with pip"
  fi
}

# make_venv VERSION: creates a virtual environment with that Python. An empty version means any.
make_venv() {
  get_uv
  rm -rf "$mcp/venv"
  if [ -n "$uv" ]; then
    wanted="$1"
    [ -n "$wanted" ] || wanted="$python"
    set -- --no-project
    [ -z "$wanted" ] || set -- "$@" --python "$wanted"
    "$uv" venv --quiet "$@" "$mcp/venv" ||
      fail "found no Python ${wanted:-3}: choose an image that has it in box.image, or install it on the host"
  else
    interpreter="$python"
    case "$1" in
    3 | '') ;;
    3.*)
      interpreter="$(command -v "python$1")" ||
        fail "this box has no Python $1 (searched in $box_path), and no uv to install one with: choose an image that has it in box.image"
      ;;
    esac
    "$interpreter" -m venv "$mcp/venv" >"$tmp/venv.log" 2>&1 ||
      "$interpreter" -m venv --without-pip "$mcp/venv" ||
      fail "$interpreter cannot create a virtual environment: install python3-venv on the host, or choose an image that has uv in box.image"
  fi
}

# install_python REQUIREMENT...
install_python() {
  if [ -n "$uv" ]; then
    "$uv" pip install --python "$mcp/venv/bin/python" "$@"
  elif "$mcp/venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$mcp/venv/bin/python" -m pip install "$@"
  else
    "$pip" -m pip --python "$mcp/venv/bin/python" install "$@"
  fi
}

# install_tool REQUIREMENT...: like uvx, with a newer Python if a package requires it.
install_tool() {
  if [ -z "$uv" ]; then
    install_python "$@"
    return
  fi
  { install_python "$@" 2>&1 && : >"$tmp/installed"; } | tee "$tmp/install.log" >&2
  if [ -f "$tmp/installed" ]; then
    return
  fi
  newer="$(sed -n 's/.*does not satisfy Python\(>=3\.[0-9]*\).*/\1/p' "$tmp/install.log" | head -n 1)"
  [ -n "$newer" ] || exit 1
  say "a package requires Python $newer; searching for it"
  make_venv "$newer"
  install_python "$@"
}

# install_declared MANIFEST OPTION...: installs the dependencies of a pyproject.toml. pip cannot read them.
install_declared() {
  [ -n "$uv" ] || fail "the dependencies in $1 need uv, and this box has none: list them in a requirements.txt, choose an image that has uv in box.image, or install uv on the host"
  install_python -r "$@"
}

# sync_project DIRECTORY OPTION...: installs from the lock file.
sync_project() {
  directory="$1"
  shift
  [ -n "$uv" ] || fail "the lock file of $directory needs uv, and this box has none: choose an image that has uv in box.image, or install uv on the host"
  (cd "$directory" && "$uv" sync --frozen --no-dev --python "$mcp/venv/bin/python" "$@")
}

# refuse_compiled DIRECTORY: an editable install leaves compiled modules in this copy of the sources, which is removed.
refuse_compiled() {
  compiled="$(find "$1" -name '*.so' -newer "$mcp/venv/pyvenv.cfg" 2>/dev/null | head -n 1)" || compiled=
  [ -z "$compiled" ] || fail "$1 compiles native code, which needs a complete install: start the server with uvx --from DIRECTORY PROGRAM"
}

# Sets `program` to the interpreter, without a virtual environment if none is needed.
only_python() {
  program=
  if [ -n "$1" ]; then
    program="$(command -v "python$1")" || program=
  elif [ -n "$python" ]; then
    program="$python"
  fi
  if [ -n "$program" ]; then
    return
  fi
  if [ -z "$uv" ] && [ -z "$python" ]; then
    fail "this box has no python3 (searched in $box_path): choose an image that has it in box.image, or install it on the host"
  fi
  make_venv "$1"
  program="$mcp/venv/bin/python"
}

# python_program NAME: sets `program` to the program of that name from the packages.
python_program() {
  for name in "$1" "$(printf %s "$1" | tr _ -)"; do
    if [ -f "$mcp/venv/bin/$name" ] && [ -x "$mcp/venv/bin/$name" ]; then
      program="$mcp/venv/bin/$name"
      return
    fi
  done
  available=
  for file in "$mcp"/venv/bin/*; do
    name="${file##*/}"
    case "$name" in
    python* | pip* | activate* | deactivate* | pydoc* | *.py) ;;
    *) available="$available $name" ;;
    esac
  done
  fail "the installed packages have no program called \`$1\`. Available programs:${available:- none}. Use --from PACKAGE and one of these names"
}

# any_program NAME: sets `program` to a program of the project or of the box.
any_program() {
  if [ -x "$mcp/venv/bin/$1" ]; then
    program="$mcp/venv/bin/$1"
  elif ! program="$(command -v "$1")"; then
    python_program "$1"
  fi
}
