"""A scheduler for pytest-xdist: tests that share a daemon run in one worker, one after the other.

Input: a function from a test's id to its group. Output: the hook for a `conftest.py`. The order of the groups is
that of collection. `--dist loadgroup` is not used: it writes the group into an attribute that pytest 9.2 ignores.
"""

from __future__ import annotations

from collections.abc import Callable

from xdist.scheduler import LoadScopeScheduling


def scheduler(group_of: Callable[[str], str]) -> Callable:
    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    def pytest_xdist_make_scheduler(config, log) -> LoadScopeScheduling:
        return Groups(config, log)

    return pytest_xdist_make_scheduler


def longest_first(items: list, modules: list[str]) -> None:
    """Sorts the tests of these modules before all others, so that the last module to end is a short one."""
    order = {name: index for index, name in enumerate(modules)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
