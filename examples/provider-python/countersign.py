"""What a provider in Python needs beside its CA: the handshake of
proto/provider/PROTOCOL.md, the lifeline, and the services over one object.

    serve("acme", "1.0.0", Acme)

Acme(settings) opens the authority, or raises Invalid for a wrong setting; its
methods are sign(request) -> (chain, roots) and roots() -> PEM. Raise one of the
errors below for failures. Copy this file: there is nothing else."""

import concurrent.futures
import json
import os
import sys
import threading

import grpc
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import provider_pb2 as pb
import provider_pb2_grpc as pb_grpc

COOKIE = ("COUNTERSIGN_PROVIDER", "b3f1c0de-6a52-4d0e-9c55-c0de5167ed01")
MAX_MESSAGE = 4 << 20


class Failure(Exception):
    """Its text is for the operator: no keys, no tokens."""

    code = grpc.StatusCode.INTERNAL


class Invalid(Failure):
    """The request or a setting is invalid; pointer is a JSON pointer to the setting."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, text, pointer=""):
        super().__init__(text)
        self.pointer = pointer


class Denied(Failure):
    code = grpc.StatusCode.PERMISSION_DENIED


class Unavailable(Failure):
    code = grpc.StatusCode.UNAVAILABLE


class Provider(pb_grpc.ProviderServicer, pb_grpc.CertificateAuthorityServicer, pb_grpc.RootSourceServicer):
    """The services of one authority, which new settings replace."""

    def __init__(self, name, version, make):
        self.name, self.version, self.make = name, version, make
        self.authority = None

    def GetMetadata(self, request, context):
        return pb.GetMetadataResponse(
            name=self.name, version=self.version, settings_schema=json.dumps(self.make.SCHEMA),
            abilities=[pb.ABILITY_CERTIFICATE_AUTHORITY, pb.ABILITY_ROOT_SOURCE])

    def Validate(self, request, context):
        try:
            self.make.check(MessageToDict(request.settings))
        except Invalid as fault:
            error = pb.Diagnostic(severity=pb.Diagnostic.SEVERITY_ERROR, summary=str(fault), pointer=fault.pointer)
            return pb.ValidateResponse(diagnostics=[error])
        return pb.ValidateResponse()

    def Configure(self, request, context):
        # Replaced only on success: after a failure the earlier settings stay.
        self.authority = answer(context, self.make, MessageToDict(request.settings))
        return pb.ConfigureResponse()

    def Ready(self, request, context):
        self.configured(context)
        return pb.ReadyResponse()

    def CSRSign(self, request, context):
        chain, roots = answer(context, self.configured(context).sign, request)
        return pb.CSRSignResponse(chain=chain, roots=roots)

    def GetRoots(self, request, context):
        return pb.GetRootsResponse(roots=answer(context, self.configured(context).roots))

    def configured(self, context):
        if self.authority is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not configured")
        return self.authority


def answer(context, call, *args):
    """Makes a call and converts what it raises to a status."""
    try:
        return call(*args)
    except Failure as failure:
        code, text = failure.code, str(failure)
    except Exception as error:  # a bug: its text may quote the request
        print(f"[ERROR] {call.__qualname__}: {type(error).__name__}", file=sys.stderr)
        code, text = grpc.StatusCode.INTERNAL, f"the provider failed: {type(error).__name__}"
    context.abort(code, text)


def serve(name, version, make):
    """Serves until the host goes away; does not return."""
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        sys.exit(f"countersign-provider-{name} is a provider: the agent starts it")
    if "1" not in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "").split(","):
        sys.exit("the host does not support version 1 of the protocol")
    lifeline = os.fdopen(int(os.environ["COUNTERSIGN_LIFELINE_FD"]), "rb", buffering=0)
    start = json.loads(read_line(lifeline))
    handshake, sys.stdout = sys.stdout, sys.stderr  # prints go to the log
    threading.Thread(target=end_with, args=(lifeline,), daemon=True).start()

    workers = concurrent.futures.ThreadPoolExecutor(max_workers=64)
    server = grpc.server(workers, options=[("grpc.max_receive_message_length", MAX_MESSAGE)])
    provider = Provider(name, version, make)
    pb_grpc.add_ProviderServicer_to_server(provider, server)
    pb_grpc.add_CertificateAuthorityServicer_to_server(provider, server)
    pb_grpc.add_RootSourceServicer_to_server(provider, server)
    alive = health.HealthServicer()
    alive.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(alive, server)

    socket = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "provider.sock")
    server.add_secure_port("unix:" + socket, grpc.ssl_server_credentials(
        [(start["server_key"].encode(), start["server_cert"].encode())],
        root_certificates=start["client_cert"].encode(), require_client_auth=True))
    server.start()
    print(f"1|1|unix|{socket}|grpc|", file=handshake, flush=True)
    server.wait_for_termination()


def read_line(lifeline):
    line = b""
    while not line.endswith(b"\n"):
        byte = lifeline.read(1)  # no further: the end of the rest means that the host is gone
        if not byte:
            sys.exit("the host is gone")
        line += byte
    return line


def end_with(lifeline):
    while lifeline.read(1):
        pass
    os._exit(0)
