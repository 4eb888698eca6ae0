"""What a failed request to the Hub becomes: one line with what happened, why, and what to type. Knows no MLX."""

import errno
from collections.abc import Iterator

from dflash2_mlx.errors import LoadError

_KEPT = "finished files are kept, one that was under way starts over."
_AGAIN = f"Run the command again: {_KEPT}"
_PASSING = (408, 429, 500, 502, 503, 504)
_UNREACHED = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}


def is_passing(error: Exception) -> bool:
    """Whether it may well be over in a few seconds: 429, 5xx, a timeout."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return error.response is not None and error.response.status_code in _PASSING
    return "TimeoutException" in _kinds(error)


def explain(error: Exception, repository: str) -> LoadError:
    """The line for what huggingface_hub, its HTTP client or the disk raised over `owner/name[@revision]`."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    endpoint = constants.ENDPOINT
    for cause in _causes(error):
        if isinstance(cause, OfflineModeIsEnabled):
            return LoadError(f"HF_HUB_OFFLINE is set, so {repository} is not asked for. Unset it to go online.")
        if isinstance(cause, HfHubHTTPError) and cause.response is not None:
            return _answered(cause, repository, endpoint)
        kinds = _kinds(cause)
        if kinds & _UNREACHED:
            return LoadError(
                f"{endpoint} cannot be reached: {_first(cause)}. Check the network, HF_ENDPOINT and proxies."
            )
        if "TransportError" in kinds or "Consistency check failed" in str(cause):
            return LoadError(f"the transfer of {repository} from {endpoint} was cut: {_first(cause)}. {_AGAIN}")
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return LoadError(f"the disk is full while fetching {repository}. Free some space. {_AGAIN}")
        if isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return LoadError(
                f"the cache is not writable: {cause.filename}. Make it so, or set HF_HOME to another folder."
            )
    if isinstance(error, ValueError | KeyError | TypeError):
        return LoadError(f"{endpoint} does not answer as a Hub does ({_first(error)}). Check HF_ENDPOINT and proxies.")
    return LoadError(f"{repository} could not be fetched from {endpoint}: {_first(error)}. {_AGAIN}")


def _answered(error: Exception, repository: str, endpoint: str) -> LoadError:
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RevisionNotFoundError

    assert isinstance(error, HfHubHTTPError)
    name, _, revision = repository.partition("@")
    status, page = error.response.status_code, f"{endpoint}/{name}"
    if isinstance(error, GatedRepoError):
        return LoadError(f"{repository} is gated ({status}): accept its terms at {page}, then set HF_TOKEN.")
    if isinstance(error, RevisionNotFoundError):
        return LoadError(f"{name} has no revision {revision} ({status}). Check the spelling at {page}.")
    if status == 401:
        return LoadError(
            f"{endpoint} does not show {name} (401): there is no such repository, or it needs a login. "
            f"Check the spelling, or accept its terms at {page} and set HF_TOKEN."
        )
    if status == 403:
        return LoadError(
            f"{endpoint} refuses {name} (403): accept its terms at {page}, or set HF_TOKEN to a token that may read it."
        )
    if status == 404:
        return LoadError(
            f"{endpoint} has no {repository} (404). Check the spelling; a private repository needs HF_TOKEN."
        )
    if status in _PASSING:
        why = "too many requests" if status == 429 else "out of order"
        return LoadError(
            f"{endpoint} answers {status} ({why}), also after waiting. Run the command again in some minutes: {_KEPT}"
        )
    return LoadError(f"{endpoint} answers {status} for {repository}. {_AGAIN}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _kinds(error: BaseException) -> set[str]:
    """Names of the error's classes: huggingface_hub changed its HTTP client between versions, their names stayed."""
    return {kind.__name__ for kind in type(error).__mro__}


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
