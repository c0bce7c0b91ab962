"""Checks that a Ray cluster answers at an address and accepts this process.

Ray would retry for minutes, with a line for each attempt.
"""

import os
import socket

import ray

from pipeline import ray_private
from pipeline.errors import UserError

CONNECT_S = 10
ANSWER_MS = 2000
"""The timeout for a head node's first answer, after up to 10 s in which Ray waits for the connection."""
REMEDY = "copy the output of `ray get-auth-token` on the head node to ~/.ray/auth_token or RAY_AUTH_TOKEN here"


def accepted_address(address: str) -> str:
    """Returns the HOST:PORT of the head node at `address`, after authenticating there.

    Raises UserError if no head node answers or it rejects this process.
    """
    try:
        if "://" in address:  # of Ray Client, or of the dashboard, which `ray job` takes from RAY_ADDRESS
            raise ValueError("a URL; set the HOST:PORT of `ray start --head --port`")
        head = ray_private.head_address(address)
        try:
            _call(head)
        except ConnectionRefusedError:
            # Ray resolves localhost to this machine's network address, where clusters of workflows do not listen.
            with ray_private.loopback_only():
                head = ray_private.head_address(address)
            _call(head)
        _authenticate(head)
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


def _authenticate(address: str) -> None:
    """Makes this process send its token if the head node demands one; by default Ray does so only for `auto`.

    Raises UserError for a missing or wrong token, RayError if no head node answers.
    """
    if not ray_private.sends_token():
        if ray_private.accepts_driver(address, ANSWER_MS):
            return
        if mode := os.environ.get("RAY_AUTH_MODE"):
            raise UserError(f"the Ray cluster at {address} demands a token, but RAY_AUTH_MODE is {mode!r}; unset it")
    try:
        # Without a token, Ray would abort this process.
        if not ray_private.has_token():
            raise UserError(f"this machine has no token for the Ray cluster at {address}; {REMEDY}")
    except ray.exceptions.AuthenticationError as error:
        raise UserError(f"no token for the Ray cluster at {address}: {error.message}") from None
    ray_private.send_token()
    if not ray_private.accepts_driver(address, ANSWER_MS):
        raise UserError(f"the Ray cluster at {address} rejects this machine's token; {REMEDY}")
