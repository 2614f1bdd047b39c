"""What the reference engine can hold of its own local work (racelab.engine.local_work)."""

from __future__ import annotations

from racelab.gates import Injector, Mechanism

STREAM = Injector(
    name="stream",
    subject="work",
    module="",
    means="the order of an instance's local work: a piece of it stops, and with it what is queued behind",
    stage="queued",
    payload="at-release",
    ends=("release",),
    simulates="the stream of a GPU: an ordered queue of work on the CPU",
    mechanisms={
        "busy-stream": Mechanism(
            means=(
                "the device is still at work that was queued before on the same stream: a long prefill, another "
                "batch's step; what is queued runs in order, and nothing but the engine's own watchdog ends the wait"
            ),
            bound_ms=300_000,
            source=(
                "CUDA C++ Programming Guide, Streams; the watchdogs of vLLM (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, 300) "
                "and SGLang (watchdog-timeout, 300)"
            ),
        ),
    },
)
