"""Fixtures: one daemon per module, and the proof at its end that nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import daemon


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
