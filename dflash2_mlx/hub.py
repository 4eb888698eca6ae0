"""Where a model lies on disk: a folder, a folder of this package, or the Hugging Face cache. Never downloads."""

import re
from pathlib import Path

from dflash2_mlx.errors import LoadError

_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$")


def find_folder(name: str, revision: str | None = None) -> Path:
    """The folder that holds the model `name`: a path, `package:...`, or a repository id in the local cache.

    Raises: LoadError saying which command fetches it, or how to spell the path.
    """
    if name.startswith("package:"):
        return Path(__file__).parent / name.removeprefix("package:")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise LoadError(f"{path} is a file, not a model folder. Give the folder that holds config.json.")
    if name.startswith((".", "/", "~")) or not _REPOSITORY.match(name):
        raise LoadError(
            f"there is no folder {path}, and it is no repository id. Give a folder, owner/name, or the alias demo."
        )
    return _cached(name, revision)


def _cached(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, pinned = name.partition("@")
    revision = revision or pinned or None
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError):
        at = f" --revision {revision}" if revision else ""
        raise LoadError(
            f"{name} is neither a folder nor in the Hugging Face cache, and nothing is downloaded unasked. "
            f"Fetch it with: hf download {repository}{at}"
        ) from None
    except HFValidationError:
        raise LoadError(f"{repository!r} is not a repository id. Give owner/name, or the path of a folder.") from None
