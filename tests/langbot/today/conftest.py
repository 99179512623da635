"""Fixtures: a daemon per module and transport, and a workspace of its own per test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from runtime import SEED, Runtime
from workspace import Workspace

#: These modules start first, so that the last one to end is a short one.
LONGEST = ['test_grants', 'test_actions', 'test_gate', 'test_relay', 'test_fence']


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    if not SEED:
        return
    # LangBot's own runtime is not expected to have what Boxwood does better.
    better = [item for item in items if item.get_closest_marker('better')]
    items[:] = [item for item in items if item not in better]
    config.hook.pytest_deselected(items=better)


def _group(item: pytest.Item) -> str:
    """Tests on one daemon run in one worker; a test that starts its own daemon runs in any."""
    parameters = item.callspec.params if hasattr(item, 'callspec') else {}
    if 'runtime' in item.fixturenames:
        return f'{item.path.stem}-{parameters["runtime"]}'
    return item.nodeid
