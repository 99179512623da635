"""Fixtures: one daemon per module, and the proof at its end that nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import daemon
from hosted import Host


@pytest.fixture(scope='session')
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture(scope='module')
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[daemon.Daemon]:
    runtime = daemon.Daemon(tmp_path_factory.mktemp('daemon'))
    try:
        yield runtime
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


@pytest.fixture(scope='session')
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One daemon for everything that is hosted: what is installed once is there for the next test."""
    roots = str(tmp_path_factory.getbasetemp())
    runtime = daemon.Daemon(
        tmp_path_factory.mktemp('hosting'), env={'BOXWOOD_MOUNTS__ALLOWED_ROOTS': roots}
    )
    try:
        yield Host(runtime)
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise
