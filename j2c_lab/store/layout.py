"""The names of everything in a store. The one place that makes keys."""

from __future__ import annotations

import re

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import RUN_ID

_DIGEST = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}")

LAYERS = "layers/sha256/"
BUNDLES = "bundles/"
RUNS = "runs/"
#: There while `j2c gc` may delete; renewed with every batch.
COLLECTING = "gc/running"


def layer(digest: str) -> str:
    """`layers/sha256/ab/<digest>.tar.zst`"""
    return f"{LAYERS}{_checked(digest)[:2]}/{digest}.tar.zst"


def bundle(digest: str) -> str:
    """`bundles/<digest>.json`"""
    return f"{BUNDLES}{_checked(digest)}.json"


def check(token: str, name: str) -> str:
    """An object of `j2c store check`."""
    return f"check/{token}/{name}"


def user_runs(user: str) -> str:
    """`runs/<user>/`"""
    if not _USER.fullmatch(user):
        raise UsageError(f"{user!r} cannot be a user's name in the store")
    return f"{RUNS}{user}/"


def run_prefix(user: str, run_id: str) -> str:
    """`runs/<user>/<run id>/`"""
    if not RUN_ID.fullmatch(run_id):
        raise UsageError(f"{run_id!r} is no run id", "j2c list shows the ids")
    return f"{user_runs(user)}{run_id}/"


def request(user: str, run_id: str) -> str:
    """What was asked, before anything was packed."""
    return run_prefix(user, run_id) + "request.json"


def run(user: str, run_id: str) -> str:
    """The run: written once."""
    return run_prefix(user, run_id) + "run.json"


def submission(user: str, run_id: str, number: int = 1) -> str:
    """The scheduler's handle: written once; a run submitted again has `submission-2.json` …"""
    name = "submission.json" if number == 1 else f"submission-{number}.json"
    return run_prefix(user, run_id) + name


def cancellation(user: str, run_id: str) -> str:
    """The wish to end the run."""
    return run_prefix(user, run_id) + "cancel.json"


def attempts(user: str, run_id: str) -> str:
    """Prefix of all attempts."""
    return run_prefix(user, run_id) + "attempts/"


def attempt(user: str, run_id: str, number: int, rank: int = 0) -> str:
    """Prefix of one attempt of one rank: `…/attempts/<n>/<rank>/`."""
    return f"{attempts(user, run_id)}{number}/{rank}/"


def attempt_start(user: str, run_id: str, number: int, rank: int = 0) -> str:
    """Claims an attempt's number."""
    return attempt(user, run_id, number, rank) + "start.json"


def outcome(user: str, run_id: str, number: int, rank: int = 0) -> str:
    """How the attempt ended: written last, once."""
    return attempt(user, run_id, number, rank) + "outcome.json"


def saved_outputs(user: str, run_id: str, number: int, rank: int = 0) -> str:
    """What the attempt has saved of its outputs so far."""
    return attempt(user, run_id, number, rank) + "outputs.json"


def journal_prefix(user: str, run_id: str, number: int, rank: int = 0) -> str:
    """Prefix of the journal's segments."""
    return attempt(user, run_id, number, rank) + "journal/"


def journal_segment(user: str, run_id: str, number: int, rank: int, segment: int) -> str:
    """`…/journal/0000000001`: ten digits, so that names sort as numbers."""
    return f"{journal_prefix(user, run_id, number, rank)}{segment:010d}"


def output(user: str, run_id: str, sha256: str) -> str:
    """The content of a saved output file, by its SHA-256; its name stands with the attempt."""
    return f"{run_prefix(user, run_id)}outputs/{_checked(sha256)}"


def split_run_url(url: str) -> tuple[str, str, str]:
    """Split `<store URL>/runs/<user>/<run id>` into the store's URL, the user and the run id."""
    parts = url.rstrip("/").rsplit("/", 3)
    if len(parts) != 4 or parts[1] != "runs":
        raise UsageError(
            f"{url!r} is no run URL", "it looks like file:///store/runs/<user>/<run id>"
        )
    run_prefix(parts[2], parts[3])
    return parts[0], parts[2], parts[3]


def run_url(store_url: str, user: str, run_id: str) -> str:
    """The URL that `j2c unpack` is given."""
    return f"{store_url}/{run_prefix(user, run_id).rstrip('/')}"


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"{digest!r} is no SHA-256 digest")
    return digest
