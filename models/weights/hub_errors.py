"""What a failed request to the Hugging Face hub means, and what to do about it."""

from __future__ import annotations

MAX_WORDS = 300
"""Most characters of an error that has no sentence here."""
SIGN_IN = "set HF_TOKEN to a token of your account, or run: hf auth login"
"""How to tell the hub who asks."""


def explained(error: Exception, repository: str) -> str:
    """Return one sentence about an error of huggingface_hub: what was wrong, and what to do.

    The hub answers 401 to an unknown caller for a repository that is private and for one that does not
    exist, and names a gated one in ``X-Error-Code`` (huggingface_hub/utils/_http.py). The client hides most
    other answers behind a LocalEntryNotFoundError, whose cause they are.
    """
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    page = f"{constants.ENDPOINT}/{repository}"
    match error:
        case errors.GatedRepoError():
            return f"{repository} asks for its licence to be accepted: accept it on {page}, and {SIGN_IN}"
        case errors.RepositoryNotFoundError():
            return f"the hub has no {repository}, or it is private: check the name, or {SIGN_IN}"
        case errors.RevisionNotFoundError():
            return f"{repository} has no such revision any more: look for the file on {page}"
        case errors.EntryNotFoundError():
            return f"{repository} has no such file: look for its name on {page}/tree/main"
        case errors.OfflineModeIsEnabled():
            return "the hub's client is offline: unset HF_HUB_OFFLINE"
        case errors.HfHubHTTPError():
            return _of_status(error.response.status_code, error.response.headers.get("retry-after", ""))
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_WORDS]}"


def _of_status(status: int, wait: str) -> str:
    if status == 429:
        pause = f"in {wait} s" if wait.isdecimal() else "in some minutes"
        return f"the hub has had too many requests from here (429): try again {pause}, or {SIGN_IN}"
    if status == 401:
        return f"the hub does not know the token (401): {SIGN_IN}"
    if status == 403:
        return "the token may not read this repository (403): give it read access to it"
    return f"the hub answers {status}: try again later"
