"""Traffic for a look at the dashboards: prompts of every tier, at a steady rate. `load.py URL [--rate N]`."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time

import aiohttp

PROMPTS = (
    "Where is my order #12345678? I paid $49.90",
    "What is the capital of France?",
    "Write a slogan for a coffee shop",
    "I want to return these shoes, they do not fit",
    "Recommend me a book for a long train ride",
    "Explain how a refrigerator works",
    "Track the parcel 370795561790",
)  # seven: with three paths every prompt takes every path
PATHS = ("/v2/models/text/generate", "/v2/models/text/generate", "/v2/models/text_stream/generate_stream")
SAY_S = 10.0


async def run(url: str, rate: float) -> None:
    """Until ended. Open loop: a slow answer holds no later request back, up to ten seconds' worth of them."""
    slots = asyncio.Semaphore(max(1, int(rate * 10)))
    counts: dict[str, int] = {}
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(url, timeout=timeout) as session, asyncio.TaskGroup() as group:
        group.create_task(say(counts))
        for path, prompt in zip(itertools.cycle(PATHS), itertools.cycle(PROMPTS), strict=True):
            await slots.acquire()
            group.create_task(ask(session, path, prompt, slots, counts))
            await asyncio.sleep(1 / rate)


async def ask(
    session: aiohttp.ClientSession, path: str, prompt: str, slots: asyncio.Semaphore, counts: dict[str, int]
) -> None:
    try:
        async with session.post(path, json={"text_input": prompt}) as response:
            await response.read()
            outcome = str(response.status)
    except (TimeoutError, aiohttp.ClientError) as error:
        outcome = type(error).__name__
    finally:
        slots.release()
    counts[outcome] = counts.get(outcome, 0) + 1


async def say(counts: dict[str, int]) -> None:
    """One line every ten seconds: how many answers of each kind."""
    while True:
        await asyncio.sleep(SAY_S)
        print(
            time.strftime("%H:%M:%S"),
            *(f"{outcome}={count}" for outcome, count in sorted(counts.items())),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second (10)")
    options = parser.parse_args()
    asyncio.run(run(options.url, options.rate))


if __name__ == "__main__":
    main()
