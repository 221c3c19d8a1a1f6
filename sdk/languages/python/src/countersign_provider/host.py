"""How the process meets its host: proto/provider/PROTOCOL.md."""

import asyncio
import io
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from . import wire
from .definition import Authority, define
from .service import Service, handlers

_COOKIE = ("COUNTERSIGN_PROVIDER", "b3f1c0de-6a52-4d0e-9c55-c0de5167ed01")
_VARIABLES = (_COOKIE[0], "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_CLIENT_CERT",
              "COUNTERSIGN_BINARY", "COUNTERSIGN_LIFELINE_FD", "COUNTERSIGN_CHANNEL_FD")
# In bytes; the host cuts a line of its log at 8 KiB.
_MAX_START, _MAX_LINE = 64 << 10, 7 << 10
# Seconds: for the calls in flight at the end.
_GRACE = 4.0


def serve(name: str, version: str, settings: type, authority: Callable[[Any], Authority]) -> None:
    """Serves until the host goes away; does not return. settings is a dataclass of setting(...)
    fields, which may have the methods validate(self), without network, and validate_online(self),
    each raising Invalid. authority(settings) is an Authority. Log with logging: the records reach
    the host's log."""
    env = {key: os.environ.pop(key, "") for key in _VARIABLES}  # not for programs that the author starts
    if env[_COOKIE[0]] != _COOKIE[1]:
        sys.exit(f"{name} {version} is a Countersign provider: a host such as `countersign agent` starts it, not you. "
                 f"To debug it, run `countersign provider debug {name}=PATH --insecure`.")
    if "1" not in env["PLUGIN_PROTOCOL_VERSIONS"].split(","):
        sys.exit(f"no common protocol version: {name} {version} has version 1, which the host does not")
    if not env["COUNTERSIGN_LIFELINE_FD"] or not env["PLUGIN_UNIX_SOCKET_DIR"]:
        sys.exit(f"{name} {version} needs a Countersign host: this one passes no lifeline, as a stock go-plugin host does")
    logging.basicConfig(handlers=[_HostLog()], level=logging.INFO)
    definition = define(name, version, settings, authority)
    stdout = _stdout_aside()
    start = _start_data(env)
    asyncio.run(_serve(Service(definition), start, env["PLUGIN_UNIX_SOCKET_DIR"], stdout))
    sys.stderr.flush()
    os._exit(0)  # a thread of the author's may hang


async def _serve(service: Service, start: dict[str, str], folder: str, stdout: int) -> None:
    server = grpc.aio.server(options=[
        ("grpc.max_receive_message_length", wire.MAX_MESSAGE), ("grpc.max_send_message_length", wire.MAX_MESSAGE)])
    server.add_generic_rpc_handlers(handlers(service))
    alive = health.aio.HealthServicer()
    await alive.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(alive, server)
    socket = os.path.join(folder, f"provider-{os.getpid()}.sock")
    server.add_secure_port("unix:" + socket, grpc.ssl_server_credentials(
        [(start["server_key"].encode(), start["server_cert"].encode())],
        root_certificates=start["client_cert"].encode(), require_client_auth=True))
    await server.start()

    terminated = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    # ^C in a terminal reaches host and provider, and the host decides.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    os.write(stdout, f"1|1|unix|{socket}|grpc|\n".encode())
    await terminated.wait()
    await server.stop(_GRACE)
    try:
        await asyncio.wait_for(service.close(), 1)
    except TimeoutError:
        logging.getLogger("countersign_provider").warning("the authority did not close in time")


def _stdout_aside() -> int:
    """Only the handshake line belongs on standard output: prints go to the log."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return stdout


def _start_data(env: dict[str, str]) -> dict[str, str]:
    """Reads the first line of the lifeline, and ends the process with its end."""
    lifeline = int(env["COUNTERSIGN_LIFELINE_FD"])
    for fd in filter(None, (env["COUNTERSIGN_LIFELINE_FD"], env["COUNTERSIGN_CHANNEL_FD"])):
        os.set_inheritable(int(fd), False)
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(lifeline, 4096)
        line += more
        if not more or len(line) > _MAX_START:
            sys.exit("the host is gone, or sent no start-up data")
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    return json.loads(line)


def _end_with(lifeline: int) -> None:
    try:
        while os.read(lifeline, 4096):
            pass
    finally:
        os._exit(0)  # at once: nobody is left to reply to


class _HostLog(logging.StreamHandler):
    """Records as hclog's JSON, a line each, as the host's log takes them."""

    def format(self, record: logging.LogRecord) -> str:
        level = "warn" if record.levelno == logging.WARNING else "error" if record.levelno > logging.WARNING else (
            "info" if record.levelno >= logging.INFO else "debug")
        text = super().format(record)[:_MAX_LINE]
        while len(line := json.dumps({"@level": level, "@module": record.name, "@message": text})) > _MAX_LINE:
            text = text[: len(text) // 2]
        return line
