"""Finds the processes of a daemon and waits until they are gone."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    #: Start time in clock ticks since boot. Distinguishes processes with the same, reused pid.
    started: int
    name: str

    def is_alive(self) -> bool:
        now = _read(self.pid)
        return now is not None and now[1].started == self.started


def descendants(ancestor: int) -> set[Process]:
    """All living descendants of the process `ancestor`."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit() and (found := _read(int(entry))) is not None:
            parent, process = found
            children.setdefault(parent, []).append(process)
    below: set[Process] = set()
    waiting = [ancestor]
    while waiting:
        for process in children.get(waiting.pop(), []):
            below.add(process)
            waiting.append(process.pid)
    return below


def assert_only(ancestor: int, allowed: set[str], within: float = 5.0) -> None:
    """Waits until every descendant of `ancestor` has one of these names."""
    deadline = time.monotonic() + within
    while others := {p for p in descendants(ancestor) if p.name not in allowed}:
        assert time.monotonic() < deadline, f'processes left in boxes: {_names(others)}'
        time.sleep(0.05)


def assert_gone(processes: set[Process], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while left := {p for p in processes if p.is_alive()}:
        assert time.monotonic() < deadline, f'processes left after the daemon exited: {_names(left)}'
        time.sleep(0.05)


def _names(processes: set[Process]) -> str:
    return ', '.join(sorted(f'{p.name} ({p.pid})' for p in processes))


def _read(pid: int) -> tuple[int, Process] | None:
    """The pid of the parent and the process, or `None` if it has exited or is a zombie."""
    try:
        stat = Path(f'/proc/{pid}/stat').read_text(errors='replace')
    except OSError:
        return None
    # The name is in parentheses and may contain parentheses and spaces.
    name = stat[stat.index('(') + 1 : stat.rindex(')')]
    fields = stat[stat.rindex(')') + 2 :].split()
    if fields[0] in ('Z', 'X'):
        return None
    return int(fields[1]), Process(pid=pid, started=int(fields[19]), name=name)
