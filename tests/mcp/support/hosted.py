"""Hosted servers of the daemon under test, and clients for them."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from mcp import Client, StdioServerParameters

from harness import daemon
from support.clients import node_environment, node_program, url

#: The directory `tests/mcp`.
SUITE = Path(__file__).parents[1]


def program_of(name: str) -> Path:
    """The path of a Rust example program for the tests, which `cargo xtask test` builds."""
    named = os.environ.get('BOXWOOD_TEST_EXAMPLES')
    directory = Path(named) if named else SUITE.parents[1] / 'target/debug/examples'
    program = directory / name
    assert program.exists(), f'{program} is missing: run `cargo xtask test --only mcp`'
    return program


class Refused(AssertionError):
    def __init__(self, status: int, body: dict):
        super().__init__(f'{status}: {body}')
        self.status = status
        self.body = body


class Host:
    """Manages the hosted servers of a daemon over its API and its command line."""

    def __init__(self, runtime: daemon.Daemon):
        self.runtime = runtime
        self.url = url(runtime)

    # The API.

    def request(self, method: str, path: str, body: object = None, headers: dict | None = None):
        host, port = self.runtime.address.rsplit(':', 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=300)
        try:
            text = None if body is None else json.dumps(body)
            sent = {'Content-Type': 'application/json', 'Accept': 'application/json'}
            connection.request(method, path, text, sent | (headers or {}))
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        try:
            found = json.loads(raw) if raw else {}
        except ValueError:
            found = {'text': raw.decode(errors='replace')}
        if answer.status >= 300:
            raise Refused(answer.status, found)
        return found

    def add(self, name: str, command: str, *args: str, **more) -> dict:
        body = {'name': name, 'command': command, 'args': list(args), **more}
        return self.request('POST', '/v1/mcp/servers', body)

    def paste(self, document: dict, **more) -> dict:
        return self.request('POST', '/v1/mcp/import', {'document': document, **more})

    def info(self, name: str) -> dict:
        return self.request('GET', f'/v1/mcp/servers/{name}')

    def state(self, name: str) -> dict:
        return self.info(name)['runtime']

    def edit(self, name: str, **what) -> dict:
        return self.request('PATCH', f'/v1/mcp/servers/{name}', what)

    def do(self, name: str, verb: str):
        return self.request('POST', f'/v1/mcp/servers/{name}/{verb}')

    def remove(self, name: str):
        return self.request('DELETE', f'/v1/mcp/servers/{name}')

    def logs(self, name: str) -> dict:
        return self.request('GET', f'/v1/mcp/servers/{name}/logs')

    def call(self, name: str, tool: str, **arguments) -> dict:
        path = f'/v1/mcp/servers/{name}/tools/{tool}'
        return self.request('POST', path, {'arguments': arguments})

    def test(self, name: str, command: str, *args: str, **more) -> dict:
        body = {'name': name, 'command': command, 'args': list(args), **more}
        return self.request('POST', '/v1/mcp/test', body)

    def test_stored(self, name: str) -> dict:
        return self.do(name, 'test')

    def sessions(self) -> set[str]:
        found = self.request('GET', '/v1/sessions')
        return {session['session_id'] for session in found}

    def session(self, name: str) -> dict:
        return self.request('GET', f'/v1/sessions/{name}')

    def until(self, name: str, status: str, within: float) -> dict:
        """Waits for a status; fails at once on `error`, with the state and the logs."""
        deadline = time.monotonic() + within
        while True:
            found = self.state(name)
            if found['status'] == status:
                return found
            # Other states, also `stopped` and `disabled`, may still change.
            lost = found['status'] == 'error' or time.monotonic() > deadline
            assert not lost, f'{name} is not {status}: {found}\n{self.logs(name)}'
            time.sleep(0.1)

    def connected(self, name: str, within: float = 60) -> dict:
        return self.until(name, 'connected', within)

    def failed(self, name: str, within: float) -> dict:
        deadline = time.monotonic() + within
        while (found := self.state(name))['status'] != 'error':
            assert found['status'] != 'connected', f'{name} connected: {found}'
            assert time.monotonic() < deadline, f'{name} did not fail in time: {found}'
            time.sleep(0.1)
        return found

    # The command line.

    def cli(self, *arguments: str, stdin: str | None = None, may_fail: bool = False):
        ended = subprocess.run(
            [daemon.program(), 'mcp', *arguments],
            cwd=self.runtime.directory,
            env=daemon.environment(BOXWOOD_URL=self.url, NO_COLOR='1'),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if not may_fail:
            assert ended.returncode == 0, f'{arguments}: {ended.stdout}\n{ended.stderr}'
        return ended

    # Clients of the gateway.

    def client(self, name: str, protocol: str, **more) -> Client:
        """The official Python client, not yet connected."""
        return Client(f'{self.url}/mcp/{name}', mode=protocol, cache=None, **more)

    def stdio_client(self, name: str, protocol: str, **more) -> Client:
        """The official Python client through `boxwood mcp proxy`, not yet connected."""
        server = StdioServerParameters(
            command=daemon.program(),
            args=['mcp', 'proxy', name],
            env=daemon.environment(BOXWOOD_URL=self.url),
            cwd=self.runtime.directory,
        )
        return Client(server, mode=protocol, cache=None, **more)

    def inspector(self, name: str, protocol: str, *arguments: str, may_fail: bool = False) -> dict:
        ended = subprocess.run(
            [
                node_program('mcp-inspector'),
                '--cli',
                f'{self.url}/mcp/{name}',
                '--transport',
                'http',
                '--protocol-era',
                protocol,
                *arguments,
            ],
            cwd=self.runtime.directory,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        # The Inspector also exits with an error if a tool reports an error, and prints the result of the tool.
        assert may_fail or ended.returncode == 0, f'{arguments}: {ended.stdout}\n{ended.stderr}'
        return json.loads(ended.stdout[ended.stdout.index('{') :])

    def rmcp(self, name: str, tool: str, arguments: dict, protocol: str = 'legacy') -> dict:
        """The client of the Rust library: returns `{"tools": […], "result": {…}}`."""
        address = f'{self.url}/mcp/{name}'
        ended = subprocess.run(
            [program_of('rmcp_client'), address, protocol, tool, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, f'{name}: {ended.stdout}\n{ended.stderr}'
        return json.loads(ended.stdout)

    # Raw requests to the gateway.

    def raw(self, name: str, message: object, headers: dict | None = None, method: str = 'POST'):
        """Sends one request; returns the HTTP response and the messages in its body or event stream."""
        host, port = self.runtime.address.rsplit(':', 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        standard = {
            'Content-Type': 'application/json',
            'Accept': 'application/json, text/event-stream',
        }
        body = None if message is None else json.dumps(message)
        try:
            connection.request(method, f'/mcp/{name}', body, standard | (headers or {}))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if (answer.getheader('Content-Type') or '').startswith('text/event-stream'):
            lines = [line[5:].strip() for line in text.splitlines() if line.startswith('data:')]
            return answer, [json.loads(line) for line in lines if line]
        return answer, [json.loads(text)] if text.strip() else []


def small(directory: Path, name: str = 'project') -> Path:
    """Creates a directory with a copy of the small server; returns the path of the server."""
    project = directory / name
    project.mkdir(parents=True, exist_ok=True)
    shutil.copy(SUITE / 'small_server.py', project / 'server.py')
    return project / 'server.py'


def text_of(result: dict) -> str:
    """The text of a tool result."""
    return '\n'.join(part.get('text', '') for part in result['content'])


def memory_kib(pid: int) -> int:
    """The resident memory of a process."""
    return _of_status(pid, 'VmRSS')


def watch_memory(pid: int) -> int:
    """Resets the peak of the resident memory; returns its current value."""
    Path(f'/proc/{pid}/clear_refs').write_text('5')
    return memory_kib(pid)


def peak_kib(pid: int) -> int:
    """The peak of the resident memory since `watch_memory`."""
    return _of_status(pid, 'VmHWM')


def _of_status(pid: int, name: str) -> int:
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(f'{name}:'):
            return int(line.split()[1])
    raise AssertionError(f'{pid} has no {name} in its status')
