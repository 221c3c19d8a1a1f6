"""A workload that has its identity by the library spiffe, from the socket that is the first
argument. It prints lines of JSON:

    client.py SOCKET                each X.509 context, with DER in hex
    client.py SOCKET jwt AUDIENCE   what it knows of a JWT-SVID, again and again, or how the call ends
    client.py SOCKET refused CALL   how a call without the security header ends
"""

import json
import queue
import sys
import time

import grpc
from cryptography.hazmat.primitives.serialization import Encoding
from jwt import get_unverified_header
from spiffe import JwtSource, JwtSvid, WorkloadApiClient, X509Source
from spiffe._proto import workload_pb2, workload_pb2_grpc
from spiffe.errors import PySpiffeError
from spiffe.workloadapi.errors import FetchJwtSvidError, ValidateJwtSvidError


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


def jwt(socket, audience):
    source, agent, first = JwtSource(socket_path=socket), WorkloadApiClient(socket), None

    def takers(svid, audience):
        bundle, takers = source.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain), []
        if succeeds(lambda: JwtSvid.parse_and_validate(svid.token, bundle, {audience})):
            takers.append("library")
        if is_taken(lambda: agent.validate_jwt_svid(svid.token, audience)):
            takers.append("agent")
        return takers

    while True:
        time.sleep(0.2)
        try:
            svid = source.fetch_svid({audience})
        except FetchJwtSvidError as error:  # the agent may be away
            tell({"code": error.__cause__.code().value[0]})
            continue
        first = first or svid
        tell({
            "id": str(svid.spiffe_id),
            "key": get_unverified_header(svid.token)["kid"],
            "keys": sorted(source.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain).jwt_authorities),
            "takers": takers(svid, audience),
            "takers_of_first": takers(first, audience),
            "takers_for_another": takers(svid, "another"),
        })


def succeeds(call):
    try:
        call()
    except PySpiffeError:
        return False
    return True


def is_taken(call):
    """Says what the agent says: the library looks at the audience, too."""
    try:
        call()
    except ValidateJwtSvidError as error:
        return not isinstance(error.__cause__, grpc.RpcError)
    return True


def refused(socket, call):
    stub = workload_pb2_grpc.SpiffeWorkloadAPIStub(grpc.insecure_channel(socket))
    request = {"FetchX509SVID": workload_pb2.X509SVIDRequest, "FetchJWTBundles": workload_pb2.JWTBundlesRequest}[call]
    try:
        next(getattr(stub, call)(request(), wait_for_ready=True))
    except grpc.RpcError as error:
        tell({"code": error.code().value[0]})


{"": follow, "jwt": jwt, "refused": refused}["".join(sys.argv[2:3])](sys.argv[1], *sys.argv[3:])
