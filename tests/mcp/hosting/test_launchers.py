"""The supported commands for a server (python, uv, uvx, npx, …), with real installers in boxes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.hosted import Host, Refused, small, text_of

#: Timeout for an installation from the network on a busy machine.
INSTALL_SEC = 300
#: A small package without dependencies, pinned so that a new upload cannot change what is tested.
PACKAGE = 'iniconfig==2.3.1'
#: Inserted into a server, which then does not start without the package.
IMPORT = f'import {PACKAGE.split("=")[0]}\n'


@pytest.fixture
def start(hosting: Host) -> Iterator[Callable]:
    """A function that adds a server and waits until it is connected; the servers are removed after the test."""
    added = []

    def add(name: str, command: object, *args: object, **more) -> dict:
        hosting.add(name, str(command), *map(str, args), **more)
        added.append(name)
        hosting.connected(name, INSTALL_SEC)
        return hosting.call(name, 'whoami')['structuredContent']

    yield add
    for name in added:
        hosting.remove(name)


def server_with_import(directory: Path, name: str) -> Path:
    """Creates a directory with a server that imports the package."""
    script = small(directory, name)
    lines = script.read_text().split('\nimport json\n', 1)
    script.write_text(f'{lines[0]}\n{IMPORT}import json\n{lines[1]}')
    return script


def project(directory: Path, name: str, build: str) -> Path:
    """Creates a Python package with the server as its program."""
    script = server_with_import(directory, name)
    package = script.parent / 'src' / 'own_server'
    package.mkdir(parents=True)
    # Importing the package must not start the server, so its last line is removed.
    (package / '__init__.py').write_text(script.read_text().rstrip().removesuffix('main()'))
    script.unlink()
    (package / '__main__.py').write_text('from own_server import main\nmain()\n')
    (script.parent / 'pyproject.toml').write_text(
        f"""{build}
[project]
name = "own-server"
version = "1.0"
requires-python = ">=3.10"
dependencies = ["{PACKAGE}"]
[project.scripts]
own-server = "own_server:main"
"""
    )
    return script.parent


BUILD = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"'


def test_requirements_replace_a_linked_virtual_environment(start, tmp_path: Path):
    script = server_with_import(tmp_path, 'listed')
    (script.parent / 'requirements.txt').write_text(PACKAGE)
    interpreter = script.parent / '.venv/bin/python'
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    found = start('listed', interpreter, script)
    assert found['python'] == '/opt/mcp/venv/bin/python'
    assert found['argv'] == ['/workspace/server.py']


def test_a_virtual_environment_without_requirements_is_refused(start, hosting: Host, tmp_path: Path):
    """No file lists its packages, so the definition must."""
    script = server_with_import(tmp_path, 'by-hand')
    venv = script.parent / '.venv'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', venv], check=True)
    command = str(venv / 'bin/python')
    refused = hosting.test('refused', command, str(script))['runtime']
    assert refused['error_phase'] == 'session_create', refused
    assert 'requirements.txt' in refused['hint'], refused
    start('by-hand', command, script, **{'with': [PACKAGE]})


def test_a_package_is_installed_in_editable_mode(start, hosting: Host, tmp_path: Path):
    directory = project(tmp_path, 'package', BUILD)
    found = start('package', 'uv', '--directory', directory, 'run', 'own-server', '--deep')
    assert found['argv'] == ['/opt/mcp/venv/bin/own-server', '--deep']
    assert found['cwd'] == '/workspace'
    assert not list(directory.rglob('*.egg-info')), 'the installation wrote into the source directory'
    # The next start works without network and uses the changed sources.
    source = directory / 'src/own_server/__init__.py'
    source.write_text(source.read_text().replace("'Returns the text.'", "'Returns the text again.'"))
    hosting.edit('package', box={'network': 'off'})
    hosting.do('package', 'restart')
    tools = hosting.connected('package', 60)['tools']
    assert 'Returns the text again.' in [tool['description'] for tool in tools]


def test_running_a_package_does_not_change_its_directory(start, tmp_path: Path):
    directory = project(tmp_path, 'direct', BUILD)
    before = sorted(directory.rglob('*'))
    start('direct', 'python3', '-m', 'own_server', cwd=str(directory), box={'host_path_mode': 'rw'})
    assert sorted(directory.rglob('*')) == before


def test_a_project_with_dependencies_and_no_build_system(start, tmp_path: Path):
    script = server_with_import(tmp_path, 'declared')
    (script.parent / 'pyproject.toml').write_text(
        f'[project]\nname = "declared"\nversion = "1"\ndependencies = ["{PACKAGE}"]\n'
    )
    found = start('declared', 'uv', 'run', 'server.py', cwd=str(script.parent))
    assert found['argv'] == ['server.py']
    assert found['cwd'] == '/workspace'


def test_a_script_with_inline_dependencies(start, tmp_path: Path):
    script = server_with_import(tmp_path, 'inline')
    block = f'# /// script\n# dependencies = ["{PACKAGE}"]\n# ///\n'
    script.write_text(block + script.read_text())
    start('inline', 'uv', 'run', script)


def test_additional_packages_for_a_script(start, hosting: Host, tmp_path: Path):
    start('beside', 'uv', 'run', '--with', PACKAGE, 'python', server_with_import(tmp_path, 'beside'))
    # A box must not be able to change the packages of the next one.
    line = 'for directory in /opt/mcp /opt/mcp/venv/bin; do touch $directory/x && echo changed; done'
    output = text_of(hosting.call('beside', 'run', text=line))
    assert 'ead-only' in output and 'changed' not in output
    start('extra', 'python3', server_with_import(tmp_path, 'extra'), **{'with': [PACKAGE]})


def test_the_same_package_is_installed_once_for_all_launchers(hosting: Host):
    time = 'mcp-server-time==2026.10.19'
    commands = {
        'by-uvx': ['uvx', '--from', time, 'mcp-server-time'],
        'by-uv': ['uv', 'tool', 'run', 'mcp-server-time@2026.10.19'],
    }
    try:
        for name, (command, *args) in commands.items():
            hosting.add(name, command, *args)
            hosting.connected(name, INSTALL_SEC)
        assert hosting.logs('by-uvx')['install'] != ''
        assert hosting.logs('by-uv')['install'] == ''
    finally:
        for name in commands:
            hosting.remove(name)


def test_programs_of_npm_packages(hosting: Host):
    package = '@modelcontextprotocol/server-everything@2026.8.31'
    commands = {
        'by-npx': ['npx', '-y', '--package', package, 'mcp-server-everything', 'stdio'],
        'by-name': ['npx', '-y', package, 'stdio'],
    }
    try:
        for name, (command, *args) in commands.items():
            hosting.add(name, command, *args)
        for name in commands:
            hosting.connected(name, INSTALL_SEC)
            assert 'hi' in text_of(hosting.call(name, 'echo', message='hi'))
    finally:
        for name in commands:
            hosting.remove(name)


def test_a_git_repository_is_mounted_with_its_history(hosting: Host, tmp_path: Path):
    directory = tmp_path / 'repository'
    directory.mkdir()
    git = ['git', '-c', 'user.name=x', '-c', 'user.email=x@example.org']
    for arguments in [['init', '-q'], ['commit', '-q', '--allow-empty', '-m', 'the first of all']]:
        subprocess.run([*git, *arguments], cwd=directory, check=True)
    hosting.add('history', 'uvx', 'mcp-server-git@2026.10.19', '--repository', str(directory))
    try:
        hosting.connected('history', INSTALL_SEC)
        output = hosting.call('history', 'git_log', repo_path='/workspace')
        assert 'the first of all' in text_of(output)
    finally:
        hosting.remove('history')


def test_an_unknown_program_of_a_package_is_reported_with_the_available_ones(hosting: Host):
    found = hosting.test('misnamed', 'uvx', '--from', 'mcp-server-time==2026.10.19', 'time-server')
    runtime = found['runtime']
    assert runtime['error_phase'] == 'dep_install', runtime
    assert 'no program called `time-server`' in runtime['error_message']
    assert 'mcp-server-time' in runtime['error_message']


@pytest.mark.parametrize(
    ('command', 'args', 'alternative'),
    [
        ('docker', ['run', '-i', 'mcp/time'], 'box.image'),
        ('bunx', ['server'], 'npx'),
        ('npm', ['exec', 'server'], 'npx'),
        ('pipx', ['run', 'server'], 'uvx'),
        ('https://example.org/mcp', [], 'mcp-remote'),
        ('npx', ['--no-such-option', 'x'], '--no-such-option'),
    ],
)
def test_unsupported_commands_are_refused_with_an_alternative(
    hosting: Host, command: str, args: list[str], alternative: str
):
    try:
        found = json.dumps(hosting.test('refused', command, *args))
    except Refused as refused:
        found = json.dumps(refused.body)
    assert alternative in found, found
