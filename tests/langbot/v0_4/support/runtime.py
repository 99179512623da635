"""Starts and stops the runtime under test, on either transport.

With `BOXWOOD_TEST_RUNTIME=langbot-box` the runtime is LangBot Box (which needs `nsjail` on the `PATH`),
to test the suite itself; tests marked `better` are then deselected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness import daemon, processes
from support.link import Link, box_config

LANGBOT_BOX = os.environ.get('BOXWOOD_TEST_RUNTIME') == 'langbot-box'


class Runtime:
    """One daemon with one connected client."""

    def __init__(self, transport: str, directory: Path):
        self.transport = transport
        self.directory = directory
        self.address = ''
        self.link: Link
        self._child: daemon.Daemon | subprocess.Popen | None = None

    async def start(self, env: dict[str, str] | None = None, config: dict | None = None) -> None:
        """Sends LangBot's default configuration if `config` is `None`; an empty one is not sent."""
        config = box_config(self.directory / 'boxroot') if config is None else config
        env = env or {}
        if self.transport == 'stdio':
            port = daemon.free_port()
            command, args = self._stdio_command(port)
            self.address = f'127.0.0.1:{port}'
            environment = daemon.environment(**env)
            self.link = await Link.by_stdio(command, args, environment, self.directory, config)
        else:
            self._child, self.address = self._start_listening(env)
            self.link = await Link.by_ws(self.address, config)

    @property
    def pid(self) -> int:
        return self.link.process.pid if self._child is None else self._child.pid

    @property
    def url(self) -> str:
        return f'http://{self.address}'

    def assert_idle(self) -> None:
        """Asserts that no process of a session is left."""
        processes.assert_only(self.pid, set() if LANGBOT_BOX else daemon.IDLE)

    async def stop(self) -> None:
        """Stops the runtime and asserts that no process is left."""
        if self._child is None:
            await self._end_by_closing_stdin()
            return
        await self.link.close()
        if isinstance(self._child, daemon.Daemon):
            await asyncio.to_thread(self._child.stop)
        else:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    async def _end_by_closing_stdin(self) -> None:
        process = self.link.process
        family = processes.descendants(process.pid)
        assert self.link.handler is not None
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

    def _stdio_command(self, port: int) -> tuple[str, list[str]]:
        if LANGBOT_BOX:
            return sys.executable, [*_LANGBOT_BOX_ARGUMENTS, str(port), '-s']
        arguments = daemon.arguments(self.directory / 'state', port)
        return daemon.program(), [*arguments, '--stdio']

    def _start_listening(
        self, env: dict[str, str]
    ) -> tuple[daemon.Daemon | subprocess.Popen, str]:
        if not LANGBOT_BOX:
            child = daemon.Daemon(self.directory, env=env)
            return child, child.address
        port = daemon.free_port()
        started = subprocess.Popen(
            [sys.executable, *_LANGBOT_BOX_ARGUMENTS, str(port)],
            cwd=self.directory,
            env=daemon.environment(**env),
            stdin=subprocess.DEVNULL,
            stderr=(self.directory / 'daemon.log').open('ab'),
        )
        _wait_for_port(port)
        return started, f'127.0.0.1:{port}'


_LANGBOT_BOX_ARGUMENTS = [
    '-m',
    'langbot_plugin.cli.__init__',
    'box',
    '--host',
    '127.0.0.1',
    '--ws-control-port',
]


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.socket() as probe:
            probe.connect(('127.0.0.1', port))
            return
        assert time.monotonic() < deadline, f'nothing listens on port {port}'
        time.sleep(0.05)
