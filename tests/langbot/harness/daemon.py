"""Starts and stops `boxwood serve` for a suite."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

from . import processes

#: Processes of an idle daemon: the spawner, and prewarmed boxes.
IDLE = {'boxwood-spawn', 'boxwood-init'}

_READY = 'listening on http://'


def program() -> str:
    """The binary under test: `BOXWOOD_BIN`, which `cargo xtask test` sets, or the debug build."""
    named = os.environ.get('BOXWOOD_BIN')
    if named:
        return named
    return str(Path(__file__).resolve().parents[3] / 'target' / 'debug' / 'boxwood')


def arguments(state_dir: Path, port: int) -> list[str]:
    """Arguments of `boxwood` for a daemon without a configuration file."""
    return [
        'serve',
        '--listen',
        f'127.0.0.1:{port}',
        '--config',
        '/dev/null',
        '--state-dir',
        str(state_dir),
    ]


def environment(**extra: str) -> dict[str, str]:
    """The environment of the suite without variables that configure Boxwood or LangBot."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('BOXWOOD_', 'LANGBOT_', 'BOX__'))
    }
    return kept | extra


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Daemon:
    """A daemon on 127.0.0.1 with `directory` as its working directory. Port 0 means any free port."""

    def __init__(
        self, directory: Path, *extra: str, port: int = 0, env: dict[str, str] | None = None
    ):
        self.directory = directory
        self.state_dir = directory / 'state'
        self.process = subprocess.Popen(
            [program(), *arguments(self.state_dir, port), *extra],
            cwd=directory,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(directory / 'daemon.log').open('ab'),
            text=True,
        )
        try:
            self.address = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Kills the daemon with SIGKILL, like a crash."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return (self.directory / 'daemon.log').read_text(errors='replace')

    def stop(self) -> None:
        """Stops the daemon with SIGTERM, and asserts that none of its processes is left."""
        family = processes.descendants(self.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        processes.assert_gone(family)
        assert code == 0, f'the daemon exited with {code}:\n{self.log()}'

    def _wait_until_ready(self) -> str:
        stdout = self.process.stdout
        assert stdout is not None
        watchdog = threading.Timer(30, self.process.kill)
        watchdog.start()
        try:
            for line in stdout:
                if _READY in line:
                    return line.split(_READY, 1)[1].split()[0].rstrip('/')
        finally:
            watchdog.cancel()
        raise AssertionError(f'the daemon exited before it was ready:\n{self.log()}')
