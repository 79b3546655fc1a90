"""Many who ask the same at once are one question; what is kept is kept for a moment, and trouble is not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.console.sharing import KEPT_MAX, Shared


class Question:
    """Counts how often it is asked; answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.trouble: Exception | None = None

    async def __call__(self) -> int:
        self.asked += 1
        await self.may_answer.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.asked


def play(scenario: Callable[[Shared, Question, list[float]], Awaitable[None]]) -> None:
    async def run() -> None:
        now = [0.0]
        await asyncio.wait_for(scenario(Shared(lambda: now[0]), Question(), now), 10)

    asyncio.run(run())


def test_many_at_once_are_one_question() -> None:
    async def scenario(shared: Shared, question: Question, now: list[float]) -> None:
        waiting = [asyncio.ensure_future(shared.get("a", question, keep_s=1)) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        question.may_answer.set()
        assert await asyncio.gather(*waiting[1:]) == [1, 1, 1, 1] and question.asked == 1
        now[0] = 0.9
        assert await shared.get("a", question, keep_s=1) == 1
        now[0] = 1.0
        assert await shared.get("a", question, keep_s=1) == 2
        assert await shared.get("b", question, keep_s=1) == 3, "another question"

    play(scenario)


def test_trouble_is_told_to_all_and_forgotten() -> None:
    async def scenario(shared: Shared, question: Question, now: list[float]) -> None:
        question.trouble = ValueError("away")
        question.may_answer.set()
        waiting = [asyncio.ensure_future(shared.get("a", question, keep_s=1)) for _ in range(3)]
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, ValueError) for each in told) and question.asked == 1
        question.trouble = None
        assert await shared.get("a", question, keep_s=1) == 2

    play(scenario)


def test_what_is_kept_is_bounded() -> None:
    async def scenario(shared: Shared, question: Question, now: list[float]) -> None:
        question.may_answer.set()
        for number in range(2 * KEPT_MAX):
            await shared.get(number, question, keep_s=100)
        assert len(shared._kept) == KEPT_MAX
        before = question.asked
        await shared.get(2 * KEPT_MAX - 1, question, keep_s=100)
        assert question.asked == before
        now[0] = 1000.0
        await shared.get("a", question, keep_s=100)
        assert len(shared._kept) == 1, "what is too old is forgotten"

    play(scenario)


def test_the_answer_before_is_told_while_a_new_one_takes_its_time() -> None:
    async def scenario(shared: Shared, question: Question, now: list[float]) -> None:
        assert await shared.latest("a", question, keep_s=1, wait_s=0.001) is None, "there is none yet"
        question.may_answer.set()
        assert await shared.latest("a", question, keep_s=1, wait_s=None) == 1
        question.may_answer.clear()
        now[0] = 1.0
        assert await shared.latest("a", question, keep_s=1, wait_s=0.001) == 1 and question.asked == 2
        question.may_answer.set()
        assert await shared.latest("a", question, keep_s=1, wait_s=None) == 2
        question.trouble = ValueError("away")
        now[0] = 2.0
        with pytest.raises(ValueError, match="away"):
            await shared.latest("a", question, keep_s=1, wait_s=None)

    play(scenario)


def test_a_question_that_raises_at_once_is_trouble_too() -> None:
    async def scenario(shared: Shared, question: Question, now: list[float]) -> None:
        async def broken() -> int:
            raise RuntimeError("at once")

        for _ in range(2):
            with pytest.raises(RuntimeError):
                await shared.get("a", broken, keep_s=1)

    play(scenario)
