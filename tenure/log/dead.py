"""Dead letters: what stands in a log and is passed over by every reader of it, kept apart for people (decision 0018).

    TENURE_DEAD-<cluster>   tenure-dead.<cluster>.unreadable.<position>   no fact, whoever reads it
                            tenure-dead.<cluster>.condemned.<position>    a fact that a role could not fold

The log keeps the original: nothing is ever taken out of it. That something is unreadable follows from its bytes alone.
That a fact is condemned stands here only, and readers ask for it before they begin. A subject alone says nothing: the
server's answers go wherever a question says, here as well. What counts is a letter that names its own subject.
"""

import base64
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tenure.domain.ids import Position
from tenure.domain.units import SECOND, Millis
from tenure.log.link import FORBIDDEN, Link, Refused
from tenure.log.port import Unavailable
from tenure.log.subjects import Subjects

logger = logging.getLogger(__name__)

DATA_MAX = 64 << 10
"""Bytes of the original that a letter holds; the rest is in the log."""
LETTERS_MAX = 10_000
"""A stream that is full takes no more letters; what is unreadable is passed over all the same."""
UNREADABLE_MAX = 9_000
"""With so many letters there is room for verdicts only: a role must be able to have condemned what it cannot fold."""
CONDEMNED_MAX = 16
"""So many facts roles condemn by themselves. More of them are a mistake in the program, and a person decides."""
REASON_MAX = 1_000
ANSWER_S = 5.0
NOT_FOUND, NAME_TAKEN, WRONG_LAST, NO_MESSAGE = 10059, 10058, 10071, 10037
_TEXT = re.compile(r"[^\x20-\x7e]")


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. `data`: the first of `size` bytes; `at`: when it was kept (epoch ms), 0 before; `by`: its finder."""

    position: Position
    subject: str
    reason: str
    by: str
    size: int
    condemned: bool = False
    at: Millis = 0
    data: bytes = b""


class DeadLetters:
    """The dead letters of one log."""

    def __init__(self, link: Link, subjects: Subjects, *, replicas: int = 1) -> None:
        self._link, self._subjects, self._replicas = link, subjects, replicas
        self._is_made = self._was_full = False
        self._last = UNREADABLE_MAX
        """The number of the last letter, as far as we know: there are no more than so many."""
        self._judged: dict[str, tuple[int, Position | None]] = {}
        """By subject of verdicts: how many messages were looked at, and what they condemn."""

    async def keep(self, letter: DeadLetter) -> bool:
        """Keep it durably, unless it is there already or there is no room: then False. Raises `Lost` and `Refused`."""
        subject = self._subjects.dead(letter.position, condemned=letter.condemned)
        kept = msgspec.structs.replace(letter, reason=_TEXT.sub("?", letter.reason)[:REASON_MAX], data=b"")
        body = msgspec.json.encode(kept) + b"\n" + letter.data[:DATA_MAX]
        once = {"Nats-Expected-Last-Subject-Sequence": "0"}
        if not self._is_made:
            await self.ensure()
        if not letter.condemned and self._last >= UNREADABLE_MAX and await self._are_full():
            return False
        try:
            self._last = (await self._link.ask(subject, body, headers=once, timeout_s=ANSWER_S))["seq"]
        except Refused as refused:
            if refused.code != WRONG_LAST:
                raise
            if not letter.condemned or letter.position in await self.condemned():
                return False
            await self._link.ask(subject, body, timeout_s=ANSWER_S)  # what lies there is no letter
        return True

    async def _are_full(self) -> bool:
        """Whether there is no room for what is unreadable. Said once."""
        state = (await self._info({})).get("state", {})
        self._last, full = int(state.get("last_seq", 0)), int(state.get("messages", 0)) >= UNREADABLE_MAX
        if full and not self._was_full:
            logger.warning("the dead letters are full: what is no fact from now on is passed over and not kept there")
        self._was_full = full
        return full

    async def ensure(self) -> None:
        """Make the stream if there is none and we may. Raises `Lost` and `Refused`."""
        config = {
            "name": self._subjects.dead_stream,
            "subjects": [self._subjects.every_dead],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_msgs": LETTERS_MAX,
            "max_msg_size": 2 * DATA_MAX,
            "num_replicas": self._replicas,
            "compression": "s2",
        }
        try:
            await self._link.api(f"STREAM.CREATE.{self._subjects.dead_stream}", config, timeout_s=ANSWER_S)
        except Refused as refused:  # it is there, made otherwise; or whoever looks after the server makes it
            if refused.code != NAME_TAKEN and refused.status != FORBIDDEN:
                raise
        self._is_made = True

    async def condemned(self) -> frozenset[Position]:
        """The positions of all condemned facts. Raises `Lost` and `Refused`."""
        found: dict[str, int] = {}
        while True:
            question = {"subjects_filter": self._subjects.every_condemned, "offset": len(found)}
            page = (await self._info(question)).get("state", {}).get("subjects") or {}
            found.update(page)
            if not page or len(found) >= LETTERS_MAX:
                break
        verdicts = [await self._verdict_on(subject, count) for subject, count in sorted(found.items())]
        return frozenset(position for position in verdicts if position is not None)

    async def _verdict_on(self, subject: str, count: int) -> Position | None:
        """The position that a letter on this subject condemns; None where none of the `count` there is a letter."""
        if self._judged.get(subject, (0, None))[0] != count:
            verdict, after = None, 0
            for _ in range(count):
                question = {"seq": after + 1, "next_by_subj": subject}
                try:
                    message = await self._letter(question)
                except Refused as refused:
                    if refused.code != NO_MESSAGE:
                        raise
                    break
                after = int(message["seq"])
                if (letter := self.opened(message["subject"], base64.b64decode(message.get("data") or ""))) is not None:
                    verdict = letter.position
                    break
            self._judged[subject] = (count, verdict)
        return self._judged[subject][1]

    async def _letter(self, question: Mapping[str, Any]) -> dict[str, Any]:
        verb = f"STREAM.MSG.GET.{self._subjects.dead_stream}"
        message: dict[str, Any] = (await self._link.api(verb, question, timeout_s=ANSWER_S))["message"]
        return message

    async def count(self) -> int:
        """How many letters there are. Raises `Lost` and `Refused`."""
        return int((await self._info({})).get("state", {}).get("messages", 0))

    async def read(self, *, limit: int = LETTERS_MAX) -> list[DeadLetter]:
        """The latest letters, the oldest of them first. Raises `Lost` and `Refused`."""
        last = int((await self._info({})).get("state", {}).get("last_seq", 0))
        letters: list[DeadLetter] = []
        while last > 0 and len(letters) < limit:
            try:
                letters.append(self._read(await self._letter({"seq": last})))
            except Refused as refused:
                if refused.code != NO_MESSAGE:
                    raise
            last -= 1
        return letters[::-1]

    async def condemn(self, position: Position, *, reason: str, by: str, at_most: int | None = CONDEMNED_MAX) -> bool:
        """Have every reader pass over what stands at a position; False if that was said before.

        Raises `Unavailable` when so many are condemned already that no role may go on by itself; `Lost`, `Refused`.
        """
        known = await self.condemned()
        if at_most is not None and position not in known and len(known) >= at_most:
            raise Unavailable(f"{len(known)} facts are condemned already: `tenure log dead` shows them")
        verb = f"STREAM.MSG.GET.{self._subjects.stream}"
        try:
            answer = await self._link.api(verb, {"seq": position}, timeout_s=ANSWER_S)
        except Refused as refused:
            if refused.code == NO_MESSAGE:
                raise Unavailable(f"nothing stands at {position}") from refused
            raise
        data = base64.b64decode(answer["message"].get("data") or "")
        letter = DeadLetter(
            position=position,
            subject=answer["message"]["subject"],
            reason=reason,
            by=by,
            size=len(data),
            condemned=True,
            data=data,
        )
        return await self.keep(letter)

    async def _info(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._link.api(f"STREAM.INFO.{self._subjects.dead_stream}", question, timeout_s=ANSWER_S)
        except Refused as refused:
            if refused.code != NOT_FOUND:
                raise
            return {}

    def opened(self, subject: str, body: bytes) -> DeadLetter | None:
        """The letter that lies on a subject; None for what is no letter, or one about something else."""
        head, _, data = body.partition(b"\n")
        try:
            letter = msgspec.json.decode(head, type=DeadLetter)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if subject != self._subjects.dead(letter.position, condemned=letter.condemned):
            return None
        return msgspec.structs.replace(letter, data=data)

    def _read(self, message: Mapping[str, Any]) -> DeadLetter:
        """A letter as it was kept. What somebody else had put into the stream is told as what it is."""
        body, subject = base64.b64decode(message.get("data") or ""), message["subject"]
        at = int(datetime.fromisoformat(message["time"]).timestamp() * SECOND)
        letter = self.opened(subject, body) or DeadLetter(
            position=Position(0), subject=subject, reason="no letter of ours", by="", size=len(body)
        )
        return msgspec.structs.replace(letter, at=at)
