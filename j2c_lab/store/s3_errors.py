"""What went wrong with an S3 request: whether it passes, and how to say it to a person."""

from __future__ import annotations

from typing import Any

from j2c_lab.errors import J2CError, NotFoundError, StoreError

#: Codes that a next try may not meet again.
_PASSING_CODES = {
    "BadDigest",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "XAmzContentSHA256Mismatch",
}
_FULL_CODES = {"XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "EntityTooLarge"}
_EXPIRED_CODES = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}

#: By the code of the answer: what it means, and what to do.
_MEANINGS = {
    "AccessDenied": (
        "does not allow this with these credentials",
        "ask its owner for the right to list, read, write and delete there",
    ),
    "AllAccessDisabled": ("does not allow this", "ask its owner"),
    "403": (
        "does not allow this with these credentials",
        "check them, and ask the store's owner for the right to list, read, write and delete",
    ),
    "InvalidAccessKeyId": (
        "does not know the access key",
        "check AWS_ACCESS_KEY_ID or the profile in AWS_PROFILE",
    ),
    "SignatureDoesNotMatch": (
        "refused the signature: the secret key is wrong",
        "check AWS_SECRET_ACCESS_KEY or the profile in AWS_PROFILE",
    ),
    "RequestTimeTooSkewed": (
        "refused the request because the clocks differ too much",
        "set this machine's clock (or the store's) by NTP",
    ),
    "InvalidToken": ("refused the session token", "sign in again, or unset AWS_SESSION_TOKEN"),
    "NoSuchBucket": (
        "has no bucket of this name",
        "create the bucket, or check --store and AWS_ENDPOINT_URL_S3",
    ),
    "PermanentRedirect": ("keeps this bucket in another region", "set AWS_REGION to that region"),
    "AuthorizationHeaderMalformed": (
        "keeps this bucket in another region",
        "set AWS_REGION to that region",
    ),
}


class Refused(StoreError):
    """The server answered, and the answer is no. Carries what the caller decides by."""

    def __init__(self, error: J2CError, code: str, status: int) -> None:
        super().__init__(error.message, error.remedy)
        #: The server's own word, such as `NoSuchKey`.
        self.error_code = code
        #: The HTTP status.
        self.status = status
        #: Whether an earlier try of the same request may have arrived.
        self.ambiguous = False

    @property
    def missing(self) -> bool:
        """Whether there is no such object (as opposed to no such bucket or upload)."""
        return self.error_code in ("NoSuchKey", "404", "NotFound")


def code_and_status(error: BaseException) -> tuple[str, int]:
    """Return the server's code and the HTTP status; empty and 0 when there was no answer."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    if not isinstance(response, dict):
        return "", 0
    return (
        str(response.get("Error", {}).get("Code", "")),
        int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
    )


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may well succeed a little later."""
    import aiohttp
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(error, exceptions.ClientError):
        code, status = code_and_status(error)
        if code in _FULL_CODES or status in (501, 505, 507):
            return False
        return code in _PASSING_CODES or status >= 500 or status in (408, 429)
    if isinstance(error, exceptions.SSLError):
        return False
    return isinstance(
        error,
        # asyncio's TimeoutError is a class of its own on Python 3.10.
        (
            # botocore's ConnectionError is no HTTPClientError, nor Python's own.
            *(exceptions.HTTPClientError, exceptions.ConnectionError, aiohttp.ClientError),
            *(ResponseParserError, ConnectionError),
            *_timeouts(),
        ),
    )


def is_a_bug(error: BaseException) -> bool:
    """Return whether an error comes neither from the server nor from the way to it."""
    import aiohttp
    from botocore.exceptions import BotoCoreError, ClientError

    known = (BotoCoreError, ClientError, aiohttp.ClientError, OSError, ValueError, *_timeouts())
    return not is_passing(error) and not isinstance(error, known)


def is_expired(error: BaseException) -> bool:
    """Return whether the credentials were good once."""
    return code_and_status(error)[0] in _EXPIRED_CODES


def explain(error: BaseException, url: str, endpoint: str = "", key: str = "") -> J2CError:
    """Return the error as one sentence with what to do.

    Parameters
    ----------
    error : BaseException
        Anything that a request raised.
    url : str
        The store's URL.
    endpoint : str, optional
        Address of the server.
    key : str, optional
        The object that was asked for.
    """
    from botocore import exceptions

    store = f"the store {url}"
    at = f" at {endpoint}" if endpoint else ""
    if isinstance(error, exceptions.ClientError):
        return _explain_answer(error, store, at, key)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return StoreError(
            f"there are no credentials for {store}",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        )
    if isinstance(error, exceptions.ProfileNotFound | exceptions.CredentialRetrievalError):
        return StoreError(f"the credentials for {store} cannot be had: {error}")
    if isinstance(error, exceptions.SSLError):
        return StoreError(
            f"{store}{at} has a certificate that is not trusted here",
            "set AWS_CA_BUNDLE to a file with the certificate of its authority",
        )
    if isinstance(error, exceptions.ProxyConnectionError):
        return StoreError(
            f"the proxy on the way to {store} does not answer", "check HTTPS_PROXY and NO_PROXY"
        )
    if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectTimeoutError):
        return StoreError(
            f"{store}{at} cannot be reached",
            "check the network and AWS_ENDPOINT_URL_S3; what was sent is kept, so just repeat",
        )
    if isinstance(error, exceptions.BotoCoreError | ValueError) and not is_passing(error):
        return StoreError(f"{store} cannot be used: {error}")
    return StoreError(
        f"{store}{at} stopped answering ({_short(error)})",
        "repeat the command later: what was sent is kept",
    )


def _explain_answer(error: BaseException, store: str, at: str, key: str) -> J2CError:
    code, status = code_and_status(error)
    if code in ("NoSuchKey", "404", "NotFound"):
        return NotFoundError(f"the store has no {key}")
    if code in _EXPIRED_CODES:
        return StoreError(
            f"the credentials for {store} have expired",
            "sign in again and repeat the command: what was sent is kept",
        )
    if code in _FULL_CODES or status == 507:
        return StoreError(f"{store} has no space left", "free some with j2c gc, or ask its owner")
    if status == 501:
        return StoreError(f"{store}{at} does not know this request ({code})", "run j2c store check")
    meaning, remedy = _MEANINGS.get(code) or _MEANINGS.get(str(status)) or ("", "")
    if meaning:
        return StoreError(f"{store}{at} {meaning}", remedy)
    said = getattr(error, "response", {}).get("Error", {}).get("Message") or code or status
    return StoreError(f"{store}{at} failed: {str(said).rstrip('.')} ({code or status})")


def _short(error: BaseException) -> str:
    if isinstance(error, _timeouts()):
        return "nothing moved for too long"
    text = str(error).splitlines()[0] if str(error) else ""
    return text[:200] or type(error).__name__


def _timeouts() -> tuple[type[BaseException], ...]:
    import asyncio

    return (TimeoutError, asyncio.TimeoutError)
