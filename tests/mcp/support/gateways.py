"""Runs the official conformance suite, and other gateways to compare with: supergateway and mcp-proxy."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import daemon
from support.clients import node_environment, node_program
from support.hosted import program_of

REVISIONS = ['2025-11-25', '2026-07-28']
#: The suite's timeout for one scenario. It reports a timeout as a failed check.
SCENARIO_MS = 30_000


def fixture() -> str:
    """The path of the server that implements everything that the suite tests."""
    return str(program_of('conformance_server'))


def mcp_proxy() -> str:
    named = os.environ.get('BOXWOOD_TEST_MCP_PROXY')
    directory = Path(named) if named else Path(__file__).parents[3] / 'target/mcp/mcp-proxy/bin'
    program = directory / 'mcp-proxy'
    assert program.exists(), f'{program} is missing: run `cargo xtask test --long --only mcp`'
    return str(program)


@dataclass
class Results:
    """How often each check passed and failed. Names are `scenario:check`."""

    passes: Counter = field(default_factory=Counter)
    failures: Counter = field(default_factory=Counter)
    #: The last message of each check that did not pass.
    messages: dict[str, str] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        return {'passed': self.passes.total(), 'failed': self.failures.total()}

    def worse_than(self, other: Results) -> dict[str, str]:
        """Checks that passed more often, or failed less often, in `other`; with their messages."""
        fewer = {name for name, count in other.passes.items() if self.passes[name] < count}
        more = {name for name, count in self.failures.items() if other.failures[name] < count}
        return {name: self.messages.get(name, 'the check did not run') for name in sorted(fewer | more)}


def run_conformance(address: str, revision: str, directory: Path) -> Results:
    """Runs the official conformance suite for a protocol revision."""
    ended = subprocess.run(
        [
            node_program('conformance'),
            'server',
            '--url',
            address,
            '--requirements',
            revision,
            '--timeout',
            str(SCENARIO_MS),
            '--output-dir',
            str(directory),
        ],
        env=node_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    result = Results()
    for found in sorted(directory.glob('server-*/checks.json')):
        # `server-NAME-2026-01-01T00-00-00-000Z`
        scenario = found.parent.name.removeprefix('server-').rsplit('-', 6)[0]
        for check in json.loads(found.read_text()):
            name = f'{scenario}:{check["id"]}'
            if check['status'] == 'SUCCESS':
                result.passes[name] += 1
                continue
            if check['status'] == 'FAILURE':
                result.failures[name] += 1
            result.messages[name] = check.get('errorMessage') or check.get('description', '')
    assert result.passes, f'{address}: {ended.stdout[-3000:]}\n{ended.stderr[-2000:]}'
    return result


@contextlib.contextmanager
def listening(command: list[str], port: int, env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """Starts a program that listens on a port, in a process group that is killed at the end."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(('127.0.0.1', port)) == 0:
                    break
            assert process.poll() is None, f'{command[0]} exited with {process.returncode}'
            assert time.monotonic() < deadline, f'{command[0]} does not listen'
            time.sleep(0.1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def direct() -> Iterator[str]:
    """The server itself over HTTP, without a gateway."""
    port = daemon.free_port()
    command = [fixture(), '--http', f'127.0.0.1:{port}']
    with listening(command, port, daemon.environment()):
        yield f'http://127.0.0.1:{port}/mcp'


@contextlib.contextmanager
def supergateway(server: str) -> Iterator[str]:
    port = daemon.free_port()
    command = [
        node_program('supergateway'),
        '--stdio',
        server,
        '--outputTransport',
        'streamableHttp',
        '--stateful',
        '--logLevel',
        'none',
        '--port',
        str(port),
    ]
    with listening(command, port, node_environment()):
        yield f'http://127.0.0.1:{port}/mcp'


@contextlib.contextmanager
def mcp_proxy_gateway(server: str) -> Iterator[str]:
    port = daemon.free_port()
    command = [mcp_proxy(), '--port', str(port), '--', *server.split()]
    with listening(command, port, daemon.environment()):
        yield f'http://127.0.0.1:{port}/mcp'
