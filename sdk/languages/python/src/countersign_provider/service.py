"""The services of one provider, over its current authority."""

import asyncio
import inspect
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from . import settings, wire
from .definition import Definition
from .errors import Internal, Invalid, NotConfigured, ProviderError, TimedOut, Unavailable, Unimplemented, clean_text

_log = logging.getLogger("countersign_provider")


class Current:
    """An authority and its calls in flight."""

    def __init__(self, authority: Any):
        self.authority, self.calls = authority, 0
        self.replaced, self.idle = asyncio.Event(), asyncio.Event()
        self.idle.set()

    def __enter__(self) -> Any:
        self.calls += 1
        self.idle.clear()
        return self.authority

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        if not self.calls:
            self.idle.set()


class Service:
    """All methods take the request's message and its context, and return or raise."""

    def __init__(self, definition: Definition):
        self.definition = definition
        self.current: Current | None = None
        self.configuring = asyncio.Lock()
        self.closing: set[asyncio.Task] = set()
        # For methods without async; the host bounds the calls in flight.
        self.threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="call")

    async def GetMetadata(self, request: Any, context: Any) -> Any:
        d = self.definition
        return wire.MESSAGES["GetMetadataResponse"](
            name=d.name, version=d.version, abilities=d.abilities, settings_schema=json.dumps(d.schema),
            **d.facts)

    async def Validate(self, request: Any, context: Any) -> Any:
        out = wire.MESSAGES["ValidateResponse"]()
        try:
            checked = await self._check(request.settings)
            look = getattr(checked, "validate_online", None)
            if request.online and look:
                out.online = True
                await self._run(look)
        except ExceptionGroup as faults:
            self._report(out, *faults.exceptions)
        except ProviderError as fault:
            self._report(out, fault)
        return out

    @staticmethod
    def _report(out: Any, *faults: Exception) -> None:
        for fault in faults:
            pointer = getattr(fault, "pointer", "")
            out.diagnostics.add(severity=1, summary=clean_text(str(fault)), pointer=pointer)

    async def _check(self, struct: Any) -> Any:
        """Returns the settings, or raises what is wrong with them."""
        values = wire.plain(MessageToDict(struct))
        faults = settings.check(self.definition.schema, values)
        if faults:
            raise ExceptionGroup("settings", faults)
        checked = settings.build(self.definition.settings, values)
        if validate := getattr(checked, "validate", None):
            await self._run(validate)
        return checked

    async def Configure(self, request: Any, context: Any) -> Any:
        async with self.configuring:
            try:
                authority = await self._run(self.definition.open, await self._check(request.settings))
            except ExceptionGroup as faults:
                raise Invalid("; ".join(map(str, faults.exceptions))) from None
            if opens := getattr(authority, "open", None):
                await self._run(opens)
            # Replaced only on success: after a failure the earlier settings stay.
            old, self.current = self.current, Current(authority)
        if old:
            task = asyncio.create_task(self._close(old))
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)
        return wire.MESSAGES["ConfigureResponse"]()

    async def _close(self, old: Current) -> None:
        """Closes an authority after its calls; watches end, and the host opens them again."""
        old.replaced.set()
        await old.idle.wait()
        if close := getattr(old.authority, "close", None):
            try:
                await self._run(close)
            except Exception as error:
                log_bug("close", error)

    async def close(self) -> None:
        """Closes the current authority after its calls."""
        if current := self.current:
            self.current = None
            await self._close(current)

    async def Ready(self, request: Any, context: Any) -> Any:
        self._configured()
        return wire.MESSAGES["ReadyResponse"]()

    async def CSRSign(self, request: Any, context: Any) -> Any:
        asked = wire.sign_request(request, context.time_remaining())
        with self._configured() as authority:
            return wire.certificate(await self._run(authority.sign, asked))

    async def GetRoots(self, request: Any, context: Any) -> Any:
        with self._configured("roots") as authority:
            return wire.MESSAGES["GetRootsResponse"](roots=wire.roots(await self._run(authority.roots)))

    async def GetRevocations(self, request: Any, context: Any) -> Any:
        with self._configured("revocations") as authority:
            return wire.MESSAGES["GetRevocationsResponse"](lists=wire.lists(await self._run(authority.revocations)))

    async def SignJwt(self, request: Any, context: Any) -> Any:
        current = self._configured("sign_jwt")
        asked = wire.jwt_request(request, context.time_remaining())
        with current as authority:
            return wire.jwt(await self._run(authority.sign_jwt, asked))

    async def ExchangeToken(self, request: Any, context: Any) -> Any:
        current = self._configured("exchange_token")
        asked = wire.token_request(request, context.time_remaining())
        with current as authority:
            return wire.token(await self._run(authority.exchange_token, asked))

    async def GetRenewalInfo(self, request: Any, context: Any) -> Any:
        current = self._configured("renewal_info")
        certificate = wire.leaf(request)
        with current as authority:
            return wire.renewal(await self._run(authority.renewal_info, certificate))

    async def WatchRoots(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(self._watch("watch_roots", wire.roots)) as sets:
            async for roots in sets:
                yield wire.MESSAGES["WatchRootsResponse"](roots=roots)

    async def WatchJwtKeys(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(self._watch("watch_jwt_keys", wire.keys)) as sets:
            async for jwks in sets:
                yield wire.MESSAGES["WatchJwtKeysResponse"](jwks=jwks)

    async def _watch(self, method: str, encode: Callable[[Any], bytes]) -> AsyncIterator[bytes]:
        """Yields each changed set that a method of the authority yields."""
        current = self._configured(method)
        sent = None
        with current as authority:
            watch = getattr(authority, method)()
            try:
                while (told := await _next(watch, current.replaced)) is not None:
                    encoded = encode(told)
                    if encoded != sent:
                        yield encoded
                    sent = encoded
            finally:
                await watch.aclose()

    def _configured(self, method: str = "sign") -> Current:
        if not hasattr(self.definition.open, method):
            raise Unimplemented(f"the provider {self.definition.name} has no such ability")
        if self.current is None:
            raise NotConfigured("the provider is not configured yet")
        return self.current

    async def _run(self, method: Callable, *args: Any) -> Any:
        """Runs an async method here, where it is cancelled, and another one in a thread."""
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        return await asyncio.get_running_loop().run_in_executor(self.threads, method, *args)


async def _next(watch: AsyncIterator[Any], replaced: asyncio.Event) -> Any:
    """Returns the next set, None at the end, or raises when the settings change."""
    tasks = [asyncio.ensure_future(anext(watch, None)), asyncio.ensure_future(replaced.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if replaced.is_set():
            raise Unavailable("the settings changed: watch again")
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def log_bug(method: str, error: BaseException) -> None:
    """Logs where a bug is. Its text may quote the request, so it stays out."""
    frames = "".join(traceback.format_tb(error.__traceback__)[-6:])
    _log.error("%s failed: %s\n%s", method, type(error).__name__, frames)


def _failure(method: str, error: Exception) -> ProviderError:
    match error:
        case ProviderError():
            return error
        case TimeoutError():
            return TimedOut("the CA did not answer in time")
    log_bug(method, error)
    return Internal(f"the provider failed: {type(error).__name__}; its log says where")


async def _abort(context: Any, method: str, error: Exception, request: Any) -> None:
    failure = _failure(method, error)
    secret = getattr(request, "token", "") or getattr(request, "subject_token", "")
    text, details = wire.status(failure, secret)
    await context.abort(failure.code, text, (("grpc-status-details-bin", details),))


def _unary(method: Callable[..., Awaitable[Any]]) -> Callable:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except Exception as error:
            await _abort(context, method.__name__, error, request)

    return call


def _stream(method: Callable[..., AsyncIterator[Any]]) -> Callable:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for reply in method(request, context):
                yield reply
        except Exception as error:
            await _abort(context, method.__name__, error, request)

    return call


_SERVICES = {
    "Provider": ("GetMetadata", "Validate", "Configure", "Ready"),
    "CertificateAuthority": ("CSRSign",),
    "RootSource": ("GetRoots",),
    "RootWatcher": ("WatchRoots",),
    "TokenExchanger": ("ExchangeToken",),
    "RenewalInfo": ("GetRenewalInfo",),
    "RevocationSource": ("GetRevocations",),
    "JwtSvid": ("SignJwt", "WatchJwtKeys"),
}
_STREAMS = ("WatchRoots", "WatchJwtKeys")


def handlers(service: Service) -> list[grpc.GenericRpcHandler]:
    """Returns what a gRPC server serves."""
    return [
        grpc.method_handlers_generic_handler(f"{wire.PACKAGE}.{name}", {m: _handler(service, m) for m in methods})
        for name, methods in _SERVICES.items()
    ]


def _handler(service: Service, method: str) -> grpc.RpcMethodHandler:
    wrap, make = (_stream, grpc.unary_stream_rpc_method_handler) if method in _STREAMS else (
        _unary, grpc.unary_unary_rpc_method_handler)
    return make(
        wrap(getattr(service, method)), request_deserializer=wire.MESSAGES[method + "Request"].FromString,
        response_serializer=wire.MESSAGES[method + "Response"].SerializeToString)
