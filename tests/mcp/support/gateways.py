"""Three gateways in front of the same stdio server: Boxwood, supergateway and mcp-proxy."""

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
from support.hosted import program_of
from support.clients import node_environment, node_program

REVISIONS = ['2025-11-25', '2026-07-28']
#: For one scenario: the suite's own, so that what it gives up on is a check with a name.
SCENARIO_MS = 30_000


def fixture() -> str:
    """The server with everything that the suite asks for."""
    return str(program_of('conformance_server'))


def mcp_proxy() -> str:
    named = os.environ.get('BOXWOOD_TEST_MCP_PROXY')
    place = Path(named) if named else Path(__file__).parents[3] / 'target/mcp/mcp-proxy/bin'
    program = place / 'mcp-proxy'
    assert program.exists(), f'{program} is missing: run `cargo xtask test --only mcp`'
    return str(program)


@dataclass
class Verdict:
    """What the suite said: how often each check passed and failed, by name as `scenario:check`."""

    passes: Counter = field(default_factory=Counter)
    failures: Counter = field(default_factory=Counter)
    #: The last words about each that is not a success.
    words: dict[str, str] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        return {'passed': self.passes.total(), 'failed': self.failures.total()}

    def worse_than(self, other: Verdict) -> dict[str, str]:
        """Checks that pass there and not here, whether they fail or are never made; and new failures."""
        fewer = {name for name, count in other.passes.items() if self.passes[name] < count}
        more = {name for name, count in self.failures.items() if other.failures[name] < count}
        return {name: self.words.get(name, 'it was not made') for name in sorted(fewer | more)}


def judge(address: str, revision: str, place: Path) -> Verdict:
    """Runs the official suite's requirements of a revision."""
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
            str(place),
        ],
        env=node_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    verdict = Verdict()
    for found in sorted(place.glob('server-*/checks.json')):
        # `server-NAME-2026-01-01T00-00-00-000Z`
        scenario = found.parent.name.removeprefix('server-').rsplit('-', 6)[0]
        for check in json.loads(found.read_text()):
            name = f'{scenario}:{check["id"]}'
            if check['status'] == 'SUCCESS':
                verdict.passes[name] += 1
                continue
            if check['status'] == 'FAILURE':
                verdict.failures[name] += 1
            verdict.words[name] = check.get('errorMessage') or check.get('description', '')
    assert verdict.passes, f'{address}: {ended.stdout[-3000:]}\n{ended.stderr[-2000:]}'
    return verdict


@contextlib.contextmanager
def listening(command: list[str], port: int, env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A program that serves a port, in a group of its own, gone afterwards with all it started."""
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
            assert process.poll() is None, f'{command[0]} ended with {process.returncode}'
            assert time.monotonic() < deadline, f'{command[0]} does not listen'
            time.sleep(0.1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def direct() -> Iterator[str]:
    """The fixture itself, over HTTP: what can be had at most."""
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
def python_proxy(server: str) -> Iterator[str]:
    port = daemon.free_port()
    command = [mcp_proxy(), '--port', str(port), '--', *server.split()]
    with listening(command, port, daemon.environment()):
        yield f'http://127.0.0.1:{port}/mcp'
