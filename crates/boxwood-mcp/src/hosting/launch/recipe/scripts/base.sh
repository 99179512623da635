set -eu
umask 022
mcp=@CACHE@
tmp="$mcp/.tmp"
box_path="$PATH"

say() {
  printf '%s\n' "$*"
}
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
# Writes the entry: the program, and the directories that come first in its PATH.
finish() {
  {
    [ -z "$1" ] || printf 'command=%s\n' "$1"
    shift
    for directory in "$@"; do
      printf 'path=%s\n' "$directory"
    done
    printf 'box_path=%s\n' "$box_path"
  } >"$mcp/.entry"
  rm -rf "$tmp"
}
# copy_sources FROM TO: copies a host directory without version history, virtual environments and modules.
copy_sources() {
  mkdir -p "$2"
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    case "${entry##*/}" in
    .git | node_modules | __pycache__ | .tox | .nox | .mypy_cache | .pytest_cache | .ruff_cache) continue ;;
    esac
    if [ -f "$entry/pyvenv.cfg" ]; then
      continue
    fi
    if [ -e "$entry" ] || [ -L "$entry" ]; then
      cp -RP "$entry" "$2/" || say "$entry is not copied completely: a part of it cannot be read in the box"
    fi
  done
}

rm -rf "$tmp"
mkdir -p "$tmp" || fail "$mcp cannot be written in this box"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# /tmp may be a small tmpfs, so temporary files are stored beside the install.
export TMPDIR="$tmp"
[ -n "${HOME:-}" ] && [ -w "$HOME" ] || export HOME="$tmp"
unset PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH VIRTUAL_ENV
export NO_COLOR=1
export UV_CACHE_DIR="$tmp/uv" UV_PYTHON_INSTALL_DIR="$mcp/python" UV_PROJECT_ENVIRONMENT="$mcp/venv"
export UV_COMPILE_BYTECODE=1 UV_NO_PROGRESS=1 UV_PYTHON_PREFERENCE=system
export PIP_CACHE_DIR="$tmp/pip" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore
export npm_config_cache="$tmp/npm" npm_config_audit=false npm_config_fund=false npm_config_progress=false
export npm_config_update_notifier=false npm_config_loglevel=http

# A configured CA bundle that is not readable breaks every download, so it is replaced by the bundle of the box or unset.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
  /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
  if [ -r "$bundle" ]; then
    break
  fi
  bundle=
done
trust() {
  eval "named=\${$1:-}"
  if [ -n "$named" ] && [ -r "$named" ]; then
    return
  fi
  if [ -n "$bundle" ]; then
    export "$1=$bundle"
  else
    unset "$1"
  fi
}
trust SSL_CERT_FILE
trust PIP_CERT
trust REQUESTS_CA_BUNDLE
trust NODE_EXTRA_CA_CERTS
