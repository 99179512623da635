"""Clients of the MCP server of the daemon under test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from mcp import Client, StdioServerParameters

from harness import daemon

PROTOCOLS = ['legacy', '2026-07-28']
TRANSPORTS = ['stdio', 'http']
#: Whether the long forms of the tests run, with more repetitions.
LONG = os.environ.get('BOXWOOD_TEST_LONG') == '1'


def node_program(name: str) -> str:
    """The path of a program from the pinned npm packages, which `cargo xtask test` installs."""
    named = os.environ.get('BOXWOOD_TEST_NODE')
    directory = Path(named) if named else Path(__file__).parents[3] / 'target/mcp/node/node_modules/.bin'
    program = directory / name
    assert program.exists(), f'{program} is missing: run `cargo xtask test --only mcp`'
    return str(program)


def node_environment() -> dict[str, str]:
    """The environment of the suite with the pinned Node first in the `PATH`."""
    directory = str(Path(node_program('node')).parent)
    return daemon.environment(PATH=f'{directory}:{os.environ["PATH"]}', NO_COLOR='1')


def url(runtime: daemon.Daemon) -> str:
    return f'http://{runtime.address}'


def stdio_arguments(runtime: daemon.Daemon, *extra: str) -> list[str]:
    return ['mcp-server', '--url', url(runtime), *extra]


def client(runtime: daemon.Daemon, transport: str, protocol: str, session: str = '') -> Client:
    """The official Python client, not yet connected."""
    if transport == 'http':
        return Client(f'{url(runtime)}/mcp', mode=protocol, cache=None)
    named = ['--session', session] if session else []
    server = StdioServerParameters(
        command=daemon.program(),
        args=stdio_arguments(runtime, *named),
        env=daemon.environment(),
        cwd=runtime.directory,
    )
    return Client(server, mode=protocol, cache=None)


class Inspector:
    """The command line of the official Inspector, which opens one connection per call."""

    def __init__(self, runtime: daemon.Daemon, transport: str, protocol: str, session: str):
        common = [node_program('mcp-inspector'), '--cli']
        if transport == 'http':
            target = [f'{url(runtime)}/mcp', '--transport', 'http']
            target += ['--header', f'Boxwood-Session: {session}']
        else:
            target = [daemon.program(), *stdio_arguments(runtime, '--session', session)]
        protocol = 'legacy' if protocol == 'legacy' else 'modern'
        if transport == 'http':
            self._command = [*common, *target, '--protocol-era', protocol]
        else:
            self._command = [*common, '--protocol-era', protocol, '--transport', 'stdio', '--', *target]
        self._directory = runtime.directory

    def run(self, *arguments: str, may_fail: bool = False) -> dict:
        command = list(self._command)
        at = command.index('--') if '--' in command else len(command)
        command[at:at] = arguments
        ended = subprocess.run(
            command,
            cwd=self._directory,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if not may_fail:
            assert ended.returncode == 0, f'{arguments}: {ended.stdout}\n{ended.stderr}'
        return json.loads(ended.stdout[ended.stdout.index('{') :])

    def call(self, name: str, arguments: dict, may_fail: bool = False) -> dict:
        pairs = []
        for key, value in arguments.items():
            pairs += ['--tool-arg', f'{key}={value}']
        return self.run('--method', 'tools/call', '--tool-name', name, *pairs, may_fail=may_fail)
