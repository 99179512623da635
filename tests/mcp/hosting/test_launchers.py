"""Every way in which people start a server, with real installers in real boxes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.hosted import Host, Refused, small, text_of

#: For an install from the network beside whatever else runs.
PATIENCE = 300
#: A small package with nothing below it, pinned so that an upload cannot change what is tested.
PACKAGE = 'iniconfig==2.3.1'
#: In front of a server: it does not start without the package.
NEEDS = f'import {PACKAGE.split("=")[0]}\n'


@pytest.fixture
def start(hosting: Host) -> Iterator[Callable]:
    """Adds a server, waits until it is connected, and takes it away again."""
    added = []

    def add(name: str, command: object, *args: object, **more) -> dict:
        hosting.add(name, str(command), *map(str, args), **more)
        added.append(name)
        hosting.connected(name, PATIENCE)
        return hosting.call(name, 'whoami')['structuredContent']

    yield add
    for name in added:
        hosting.remove(name)


def needing(place: Path, name: str) -> Path:
    """A server that needs the package, in a directory of its own."""
    script = small(place, name)
    lines = script.read_text().split('\nimport json\n', 1)
    script.write_text(f'{lines[0]}\n{NEEDS}import json\n{lines[1]}')
    return script


def project(place: Path, name: str, build: str) -> Path:
    """A package whose program is the server."""
    script = needing(place, name)
    package = script.parent / 'src' / 'own_server'
    package.mkdir(parents=True)
    # Its own last line starts it, which a package leaves to its program.
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


def test_requirements_beside_a_linked_environment(start, tmp_path: Path):
    script = needing(tmp_path, 'listed')
    (script.parent / 'requirements.txt').write_text(PACKAGE)
    interpreter = script.parent / '.venv/bin/python'
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    found = start('listed', interpreter, script)
    assert found['python'] == '/opt/mcp/venv/bin/python'
    assert found['argv'] == ['/workspace/server.py']


def test_an_environment_that_was_filled_by_hand(start, hosting: Host, tmp_path: Path):
    """No file says what the server needs, so it has to be listed."""
    script = needing(tmp_path, 'by-hand')
    venv = script.parent / '.venv'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', venv], check=True)
    command = str(venv / 'bin/python')
    refused = hosting.test('refused', command, str(script))['runtime']
    assert refused['error_phase'] == 'session_create', refused
    assert 'requirements.txt' in refused['hint'], refused
    start('by-hand', command, script, **{'with': [PACKAGE]})


def test_a_package_is_installed_and_its_sources_stay_live(start, hosting: Host, tmp_path: Path):
    place = project(tmp_path, 'package', BUILD)
    found = start('package', 'uv', '--directory', place, 'run', 'own-server', '--deep')
    assert found['argv'] == ['/opt/mcp/venv/bin/own-server', '--deep']
    assert found['cwd'] == '/workspace'
    assert not list(place.rglob('*.egg-info')), 'nothing is written beside the sources'
    # The next start is without a network, and sees what was changed.
    source = place / 'src/own_server/__init__.py'
    source.write_text(source.read_text().replace("'Says it again.'", "'Says it once more.'"))
    hosting.edit('package', box={'network': 'off'})
    hosting.do('package', 'restart')
    tools = hosting.connected('package', 60)['tools']
    assert 'Says it once more.' in [tool['description'] for tool in tools]


def test_a_package_that_is_used_as_it_is_stays_as_it_is(start, tmp_path: Path):
    place = project(tmp_path, 'direct', BUILD)
    before = sorted(place.rglob('*'))
    start('direct', 'python3', '-m', 'own_server', cwd=str(place), box={'host_path_mode': 'rw'})
    assert sorted(place.rglob('*')) == before


def test_a_project_that_only_lists_what_it_needs(start, tmp_path: Path):
    script = needing(tmp_path, 'declared')
    (script.parent / 'pyproject.toml').write_text(
        f'[project]\nname = "declared"\nversion = "1"\ndependencies = ["{PACKAGE}"]\n'
    )
    found = start('declared', 'uv', 'run', 'server.py', cwd=str(script.parent))
    assert found['argv'] == ['server.py']
    assert found['cwd'] == '/workspace'


def test_a_script_that_says_itself_what_it_needs(start, tmp_path: Path):
    script = needing(tmp_path, 'inline')
    block = f'# /// script\n# dependencies = ["{PACKAGE}"]\n# ///\n'
    script.write_text(block + script.read_text())
    start('inline', 'uv', 'run', script)


def test_packages_beside_a_script(start, hosting: Host, tmp_path: Path):
    start('beside', 'uv', 'run', '--with', PACKAGE, 'python', needing(tmp_path, 'beside'))
    # One box must not be able to poison the next.
    line = 'for place in /opt/mcp /opt/mcp/venv/bin; do touch $place/x && echo changed; done'
    told = text_of(hosting.call('beside', 'run', text=line))
    assert 'ead-only' in told and 'changed' not in told
    start('extra', 'python3', needing(tmp_path, 'extra'), **{'with': [PACKAGE]})


def test_the_same_package_is_installed_once_for_all_launchers(hosting: Host):
    time = 'mcp-server-time==2026.10.19'
    ways = {
        'by-uvx': ['uvx', '--from', time, 'mcp-server-time'],
        'by-uv': ['uv', 'tool', 'run', 'mcp-server-time@2026.10.19'],
    }
    try:
        for name, (command, *args) in ways.items():
            hosting.add(name, command, *args)
            hosting.connected(name, PATIENCE)
        assert hosting.logs('by-uvx')['install'] != ''
        assert hosting.logs('by-uv')['install'] == ''
    finally:
        for name in ways:
            hosting.remove(name)


def test_programs_of_npm_packages(hosting: Host):
    package = '@modelcontextprotocol/server-everything@2026.8.31'
    ways = {
        'by-npx': ['npx', '-y', '--package', package, 'mcp-server-everything', 'stdio'],
        'by-name': ['npx', '-y', package, 'stdio'],
    }
    try:
        for name, (command, *args) in ways.items():
            hosting.add(name, command, *args)
        for name in ways:
            hosting.connected(name, PATIENCE)
            assert 'hi' in text_of(hosting.call(name, 'echo', message='hi'))
    finally:
        for name in ways:
            hosting.remove(name)


def test_a_repository_keeps_its_history(hosting: Host, tmp_path: Path):
    place = tmp_path / 'repository'
    place.mkdir()
    git = ['git', '-c', 'user.name=x', '-c', 'user.email=x@example.org']
    for arguments in [['init', '-q'], ['commit', '-q', '--allow-empty', '-m', 'the first of all']]:
        subprocess.run([*git, *arguments], cwd=place, check=True)
    hosting.add('history', 'uvx', 'mcp-server-git@2026.10.19', '--repository', str(place))
    try:
        hosting.connected('history', PATIENCE)
        told = hosting.call('history', 'git_log', repo_path='/workspace')
        assert 'the first of all' in text_of(told)
    finally:
        hosting.remove('history')


def test_a_program_that_the_package_does_not_have_is_told_with_those_it_has(hosting: Host):
    found = hosting.test('misnamed', 'uvx', '--from', 'mcp-server-time==2026.10.19', 'time-server')
    runtime = found['runtime']
    assert runtime['error_phase'] == 'dep_install', runtime
    assert 'no program called `time-server`' in runtime['error_message']
    assert 'mcp-server-time' in runtime['error_message']


@pytest.mark.parametrize(
    ('command', 'args', 'way_out'),
    [
        ('docker', ['run', '-i', 'mcp/time'], 'box.image'),
        ('bunx', ['server'], 'npx'),
        ('npm', ['exec', 'server'], 'npx'),
        ('pipx', ['run', 'server'], 'uvx'),
        ('https://example.org/mcp', [], 'mcp-remote'),
        ('npx', ['--no-such-option', 'x'], '--no-such-option'),
    ],
)
def test_what_cannot_be_started_is_said_with_the_way_out(
    hosting: Host, command: str, args: list[str], way_out: str
):
    try:
        found = json.dumps(hosting.test('refused', command, *args))
    except Refused as refused:
        found = json.dumps(refused.body)
    assert way_out in found, found
