"""Fixtures: a daemon per module and transport, and a workspace of its own per test."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator

import pytest

from harness import groups
from support.runtime import LANGBOT_BOX, Runtime
from support.workspace import Workspace

#: Longest modules first, so that the run ends with short ones.
LONGEST = ['test_grants', 'test_actions', 'test_gate', 'test_relay', 'test_generations']


@pytest.fixture(scope='session', autouse=True)
def _own_working_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    # The SDK's handler creates `data/temp/lbp` in the working directory.
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
    groups.longest_first(items, LONGEST)
    if not LANGBOT_BOX:
        return
    # Tests marked `better` fail on LangBot Box.
    better = [item for item in items if item.get_closest_marker('better')]
    items[:] = [item for item in items if item not in better]
    config.hook.pytest_deselected(items=better)


def _group(nodeid: str) -> str:
    """A module has one daemon for each transport, and the transport is a parameter of its tests."""
    module, _, name = nodeid.partition('::')
    transport = re.search(r'\[(?:.*-)?(ws|stdio)[-\]]', name)
    return f'{module} {transport[1]}' if transport else module


pytest_xdist_make_scheduler = groups.scheduler(_group)
