"""Fixtures: a daemon per module and transport, and a workspace of its own per test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from runtime import SEED, Runtime
from workspace import Workspace


@pytest.fixture(scope='session', autouse=True)
def _own_working_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    # The SDK's handler makes `data/temp/lbp` wherever the process stands.
    os.chdir(tmp_path_factory.mktemp('client'))


@pytest.fixture(scope='module', params=['ws', 'stdio'])
async def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runtime]:
    runtime = Runtime(request.param, tmp_path_factory.mktemp(request.param))
    await runtime.start()
    try:
        yield runtime
        runtime.assert_idle()
    finally:
        await runtime.stop()


@pytest.fixture
async def workspace(runtime: Runtime) -> AsyncIterator[Workspace]:
    workspace = Workspace(runtime)
    yield workspace
    await workspace.clean_up()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On the seed's own runtime, what Boxwood does better is no test."""
    if not SEED:
        return
    better = [item for item in items if item.get_closest_marker('better')]
    items[:] = [item for item in items if item not in better]
    config.hook.pytest_deselected(items=better)
