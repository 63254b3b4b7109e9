"""One Ray cluster of two nodes on this machine, for all tests that need one."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from motet.engine.hosts.cluster import OWN

# Whatever tests start finds the same cluster by the same token. Ray looks when it is imported.
os.environ.update(OWN)
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


HASTE = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""A node that is gone is noticed sooner than Ray usually does."""


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Two nodes of four processors each, as Ray counts them."""
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own: it forks to start other programs, and leaves files to others
        head = {"num_cpus": 4, "include_dashboard": False, "_system_config": HASTE}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=4)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        yield cluster
        ray.shutdown()
        cluster.shutdown()
