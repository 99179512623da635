"""Fixtures: one daemon per module. Its processes must be gone after it stops."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from harness import daemon, groups
from support.hosted import Host

#: These modules start first, so that the last one to end is a short one.
LONGEST = [
    'test_gateway_conformance',
    'test_published_servers',
    'test_hostile_servers',
    'test_calls',
    'test_hosted_servers',
    'test_launchers',
    'test_gateway',
    'test_many_servers',
]


@pytest.fixture(scope='session')
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture(scope='module')
def priority() -> Iterator[None]:
    """Raises the scheduling priority of the programs that are started from now on.

    The official suite waits 1.5 s for some messages, which is too short on busy processors. Without root the
    priority does not change.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.fixture(scope='module')
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[daemon.Daemon]:
    runtime = daemon.Daemon(tmp_path_factory.mktemp('daemon'))
    try:
        yield runtime
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


@pytest.fixture(scope='module')
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A daemon that may mount the temporary directories of the tests."""
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups.longest_first(items, LONGEST)


# All tests of a module share one daemon.
pytest_xdist_make_scheduler = groups.scheduler(lambda nodeid: nodeid.partition('::')[0])
