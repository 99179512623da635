"""Starts and stops the runtime under test, on either transport.

With `BOXWOOD_TEST_RUNTIME=langbot-box` the runtime is LangBot Box (which needs `nsjail` on the `PATH`), to
test the suite itself; tests marked `better` are then deselected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from langbot_plugin.box.security import BOX_CONTROL_TOKEN_ENV, BOX_TRUSTED_INSTANCE_ENV

from harness import daemon, processes
from support.link import Link, Platform, box_config

LANGBOT_BOX = os.environ.get('BOXWOOD_TEST_RUNTIME') == 'langbot-box'

#: The name of the backend.
BACKEND = 'nsjail' if LANGBOT_BOX else 'native'

_LANGBOT_BOX_ARGUMENTS = ['-m', 'langbot_plugin.cli.__init__', 'box', '--host', '127.0.0.1']


class Runtime:
    """One daemon with one connected client of one LangBot instance."""

    def __init__(self, transport: str, directory: Path, platform: Platform | None = None):
        self.transport = transport
        self.directory = directory
        self.platform = platform or Platform()
        self.address = ''
        self.link: Link
        self._child: daemon.Daemon | subprocess.Popen | None = None

    async def start(self, *extra: str, env: dict[str, str] | None = None) -> Runtime:
        env = dict(env or {})
        if self.platform.token:
            env[BOX_CONTROL_TOKEN_ENV] = self.platform.token
        if self.transport == 'stdio':
            env[BOX_TRUSTED_INSTANCE_ENV] = self.platform.instance
            port = daemon.free_port()
            self.address = f'127.0.0.1:{port}'
            arguments = [*daemon.arguments(self.directory / 'state', port), '--stdio', *extra]
            command = daemon.program()
            if LANGBOT_BOX:
                command = sys.executable
                arguments = [*_LANGBOT_BOX_ARGUMENTS, '-s', '--ws-control-port', str(port)]
            environment = daemon.environment(**env)
            self.link = await Link.by_stdio(command, arguments, environment, self.directory)
        else:
            self._child, self.address = self._start_listening(extra, env)
            self.link = await Link.by_ws(self.address, self.platform.headers())
        await self.link.client.init(self.config())
        return self

    def _start_listening(
        self, extra: tuple[str, ...], env: dict[str, str]
    ) -> tuple[daemon.Daemon | subprocess.Popen, str]:
        if not LANGBOT_BOX:
            child = daemon.Daemon(self.directory, *extra, env=env)
            return child, child.address
        port = daemon.free_port()
        started = subprocess.Popen(
            [sys.executable, *_LANGBOT_BOX_ARGUMENTS, '--ws-control-port', str(port)],
            cwd=self.directory,
            env=daemon.environment(**env),
            stdin=subprocess.DEVNULL,
            stderr=(self.directory / 'daemon.log').open('ab'),
        )
        _wait_for_port(port)
        return started, f'127.0.0.1:{port}'

    def config(self, **sections: object) -> dict:
        return box_config(self.host_root, **sections)

    @property
    def host_root(self) -> Path:
        return self.directory / 'boxroot'

    @property
    def pid(self) -> int:
        return self.link.process.pid if self._child is None else self._child.pid

    @property
    def url(self) -> str:
        return f'http://{self.address}'

    def assert_idle(self) -> None:
        """Asserts that no process of a session is left."""
        if not LANGBOT_BOX:
            processes.assert_only(self.pid, daemon.IDLE)

    async def connect(self, headers: dict[str, str] | None = None) -> Link:
        """Connects another client over WebSocket, which works with either transport."""
        return await Link.by_ws(self.address, headers or self.platform.headers())

    async def stop(self) -> None:
        """Stops the runtime and asserts that no process is left."""
        if self._child is not None:
            await self.link.close()
            if isinstance(self._child, daemon.Daemon):
                await asyncio.to_thread(self._child.stop)
            else:
                self._child.kill()
                self._child.wait()
            return
        process = self.link.process
        family = processes.descendants(process.pid)
        await self.link.handler.conn.close()
        try:
            code = await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        finally:
            await self.link.close()
        if not LANGBOT_BOX:
            assert code == 0, f'the daemon exited with {code} after the end of stdin'
            await asyncio.to_thread(processes.assert_gone, family)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.socket() as probe:
            probe.connect(('127.0.0.1', port))
            return
        assert time.monotonic() < deadline, f'nothing listens on port {port}'
        time.sleep(0.05)
