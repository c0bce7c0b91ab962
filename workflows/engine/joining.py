"""Checks that a Ray cluster answers at an address and accepts this process.

Ray would retry for 20 s, with a line for each attempt, and aborts the process if it should send a token and there is
none. So this uses Ray's private API.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from os.path import expanduser, isfile

import ray
from ray._common.usage.usage_lib import get_cluster_metadata
from ray._private import ray_constants
from ray._private.services import canonicalize_bootstrap_address
from ray._private.utils import check_version_info
from ray._raylet import InnerGcsClient  # type: ignore[attr-defined]  # compiled

from pipeline.errors import UserError

CONNECT_S = 10
ANSWER_MS = 2000
"""The timeout for a head node's first answer, after up to 10 s in which Ray waits for the connection."""
REMEDY = "copy the output of `ray get-auth-token` on the head node to ~/.ray/auth_token or RAY_AUTH_TOKEN here"


@contextmanager
def loopback_only() -> Iterator[None]:
    """Makes a cluster started by `ray.init` in the body listen on 127.0.0.1 only (`_node_ip_address` is resolved)."""
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def accepted_address(address: str) -> str:
    """Returns the HOST:PORT of the head node at `address`, once it has answered.

    Raises UserError if no head node answers or it rejects this process.
    """
    try:
        if "://" in address:  # of Ray Client, or of the dashboard, which `ray job` takes from RAY_ADDRESS
            raise ValueError("a URL; set the HOST:PORT of `ray start --head --port`")
        head = str(canonicalize_bootstrap_address(address) or address)
        try:
            _call(head)
        except ConnectionRefusedError:
            # Ray resolves localhost to this machine's network address, where clusters of workflows do not listen.
            with loopback_only():
                head = str(canonicalize_bootstrap_address(address) or address)
            _call(head)
        _check_answer(head)
        return head
    except (OSError, ValueError, ray.exceptions.RayError) as error:
        source = "RAY_ADDRESS=" if address == os.environ.get("RAY_ADDRESS") else "--address "
        reason, *_ = str(error).split(". ")  # the rest is Ray's advice
        raise UserError(
            f"no Ray cluster answers at {source}{address} ({reason}); check that it is running and the port is open"
        ) from None


def _call(address: str) -> None:
    """Raises OSError if nothing accepts calls at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def _check_answer(address: str) -> None:
    """Raises RayError if no head node answers.

    Raises UserError if it demands a token that this process does not send, or has another version of Ray or Python.
    """
    mode, token = os.environ.get("RAY_AUTH_MODE", ""), os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
    if mode.lower() == "token" and not (os.environ.get("RAY_AUTH_TOKEN") or isfile(expanduser(token))):
        raise UserError(f"RAY_AUTH_MODE is token, but there is none in {token}; {REMEDY}")  # Ray would abort
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # Ray's C++ prints the failure to stderr, too
    try:
        check_version_info(get_cluster_metadata(InnerGcsClient.standalone(address, None, ANSWER_MS)), "this machine")
    except ray.exceptions.AuthenticationError:
        raise UserError(f"the Ray cluster at {address} wants a token; set RAY_AUTH_MODE=token, and {REMEDY}") from None
    except RuntimeError as error:
        raise UserError(f"{address}: {' '.join(str(error).split())}; install the cluster's versions here") from None
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)
