"""What cannot be asked of a request: sizes that cannot be, keys that do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from racelab.scenario import Lab, Request


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
