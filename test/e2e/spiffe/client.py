"""A workload that has its identity by the library spiffe, from the socket that is the first
argument. It prints each X.509 context as a line of JSON, with DER in hex; with a second argument, it
prints how a call without the security header ends."""

import json
import queue
import sys

import grpc
from cryptography.hazmat.primitives.serialization import Encoding
from spiffe import X509Source
from spiffe._proto import workload_pb2, workload_pb2_grpc


def tell(line):
    print(json.dumps(line), flush=True)


def der(certificate):
    return certificate.public_bytes(Encoding.DER).hex()


def follow(socket):
    source, changes = X509Source(socket_path=socket), queue.Queue()
    source.subscribe_for_updates(lambda: changes.put(None))
    while True:
        context = source.get_x509_context()
        svid = context.default_svid
        bundle = context.x509_bundle_set.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain)
        tell({
            "id": str(svid.spiffe_id),
            "leaf": der(svid.leaf),
            "roots": [der(root) for root in bundle.x509_authorities],
        })
        changes.get()


def refused(socket):
    stub = workload_pb2_grpc.SpiffeWorkloadAPIStub(grpc.insecure_channel(socket))
    try:
        next(stub.FetchX509SVID(workload_pb2.X509SVIDRequest(), wait_for_ready=True))
    except grpc.RpcError as error:
        tell({"code": error.code().value[0]})


(refused if len(sys.argv) > 2 else follow)(sys.argv[1])
