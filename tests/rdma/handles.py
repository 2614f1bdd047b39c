"""What Mooncake says in the end of an access that an engine in the machine posted."""

from __future__ import annotations

import time
from typing import Any

BOUND_S = 30.0


def final_code(engine: Any, handle: int) -> int:
    """The code of a handle once it is terminal: 1 for success, less than 0 for a failure."""
    deadline = time.monotonic() + BOUND_S
    while not (code := int(engine.transfer_check_status(handle))):
        assert time.monotonic() < deadline, f"Mooncake says nothing of an access for {BOUND_S:.0f} s"
        time.sleep(0.002)
    return code
