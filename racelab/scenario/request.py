"""A client's request, and what cannot be asked of one: sizes that cannot be, keys that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from racelab.scenario.lab import Lab


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One client request. `salt` seeds its prompt, so that equal lengths never mean equal bytes.

    `timeout_ms` is how long this client waits, in place of the lab's request time-out.
    With `prefix` the prompt starts with `prefix_tokens` tokens that depend on that name and the seed
    alone: requests that name the same prefix start alike, and go on each with a tail of its own.
    """

    prompt_tokens: int = 25
    new_tokens: int = 4
    salt: str | None = None
    prefix: str | None = None
    prefix_tokens: int = 0
    timeout_ms: int | None = None
    stop_at: int | None = None
    """the token of this index in the request's solo answer is its stop token"""


def pages_needed(lab: Lab, request: Request) -> int:
    """Pages that a request fills on decode: its prompt and the tokens that decode appends."""
    return -(-(request.prompt_tokens + request.new_tokens) // max(lab.page_tokens, 1))


def of_sizes(request: Request, lab: Lab, pages: int) -> Iterator[str]:
    """Every problem with the sizes of a request that needs so many pages in a lab."""
    sizes = {"prompt-tokens": request.prompt_tokens, "new-tokens": request.new_tokens}
    short = request.prompt_tokens < 2 or request.new_tokens < 1
    if short:
        given = ", ".join(f"{name} {value}" for name, value in sizes.items() if value < 2 - (name != "prompt-tokens"))
        yield f"a request needs a prompt of 2 tokens and 1 new token at least, not {given}"
    if (request.prefix is None) != (request.prefix_tokens == 0):
        yield "'prefix' and 'prefix-tokens' go together"
    elif not short and not 0 <= request.prefix_tokens < request.prompt_tokens:
        yield "prefix-tokens must leave at least 1 token of the prompt's own"
    if request.timeout_ms is not None and request.timeout_ms < 1:
        yield "timeout-ms must be at least 1"
    if request.stop_at is not None and not 0 <= request.stop_at < max(request.new_tokens, 1):
        yield "stop-at is the index of one of the new tokens, from 0 on"
    pools = min(lab.decode_pages, lab.prefill_pages)
    if not short and pages > pools:
        yield f"needs {pages} pages, more than a pool has ({pools})"
