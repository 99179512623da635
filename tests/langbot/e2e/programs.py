"""Starts and stops the programs under test."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ProgramFailed(Exception):
    """A program exited, or did not become ready."""


class Program:
    """One program in a session of its own, with its output appended to a log."""

    def __init__(
        self,
        name: str,
        argv: list[str],
        *,
        cwd: pathlib.Path,
        env: dict[str, str],
        log: pathlib.Path,
        stop_signal: signal.Signals,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = argv
        self._cwd = cwd
        self._env = env
        self._stop_signal = stop_signal
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f'{self.name} was not started'
        return self._child.pid

    def start(self, is_ready: Callable[[], bool], timeout_sec: float) -> None:
        """Starts the program and waits until it is ready."""
        # Must not be called on a short-lived thread: the kernel sends the parent-death signal when the
        # starting *thread* ends.
        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, int(self._stop_signal), 0, 0, 0)

        with self.log.open('ab') as output:
            self._child = subprocess.Popen(  # noqa: PLW1509: there is one thread
                self._argv,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + timeout_sec
        while not is_ready():
            self.ensure_alive()
            if time.monotonic() > deadline:
                raise ProgramFailed(f'{self.name} was not ready after {timeout_sec:.0f} s')
            time.sleep(0.1)

    def ensure_alive(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            raise ProgramFailed(f'{self.name} exited with status {self._child.returncode}')

    def kill(self) -> None:
        """Sends SIGKILL to the program alone, like a crash, and waits for it."""
        assert self._child is not None, f'{self.name} was not started'
        self._child.kill()
        self._child.wait()
        self._child = None

    def stop(self, timeout_sec: float = 30.0) -> int | None:
        """Stops the program and its session; returns its status, or None if it had to be killed."""
        if self._child is None:
            return None
        child, self._child = self._child, None
        status: int | None = None
        if child.poll() is None:
            child.send_signal(self._stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(timeout=timeout_sec)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return status


def free_port() -> int:
    """A TCP port on loopback without a listener."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(('127.0.0.1', port)) == 0


def processes_using(directory: pathlib.Path, excluded: Iterable[int]) -> list[str]:
    """Processes whose command line or mounts contain the directory.

    Every box has the workspace mounted, so this finds leftover boxes whatever their command line is.
    """
    needle = directory.name.encode()
    excluded = set(excluded)
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit() or int(entry.name) in excluded:
            continue
        # A process may exit during the scan.
        with contextlib.suppress(OSError):
            cmdline = (entry / 'cmdline').read_bytes()
            if needle in cmdline or needle in (entry / 'mountinfo').read_bytes():
                shown = cmdline.replace(b'\0', b' ').decode(errors='replace').strip()
                found.append(f'{entry.name}: {shown}')
    return found
