"""Dead letters: what stands in a log and is passed over by every reader of it, kept apart for people (decision 0018).

    TENURE_DEAD-<cluster>   tenure-dead.<cluster>.unreadable.<position>   no fact, whoever reads it
                            tenure-dead.<cluster>.condemned.<position>    a fact that a role could not fold

The log keeps the original: nothing is ever taken out of it. That something is unreadable follows from its bytes alone.
That a fact is condemned stands here only, and readers ask for it before they begin.
"""

import base64
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

DATA_MAX = 64 << 10
"""Bytes of the original that a letter holds; the rest is in the log."""
LETTERS_MAX = 10_000
"""A stream that is full takes no more letters; what is unreadable is passed over all the same."""
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
        self._is_made = False

    async def keep(self, letter: DeadLetter) -> bool:
        """Keep it durably, unless it is there already: then False. Raises `Lost` and `Refused`."""
        subject = self._subjects.dead(letter.position, condemned=letter.condemned)
        kept = msgspec.structs.replace(letter, reason=_TEXT.sub("?", letter.reason)[:REASON_MAX], data=b"")
        body = msgspec.json.encode(kept) + b"\n" + letter.data[:DATA_MAX]
        once = {"Nats-Expected-Last-Subject-Sequence": "0"}
        if not self._is_made:
            await self.ensure()
        try:
            await self._link.ask(subject, body, headers=once, timeout_s=ANSWER_S)
        except Refused as refused:
            if refused.code == WRONG_LAST:
                return False
            raise
        return True

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
        found: set[Position] = set()
        while True:
            question = {"subjects_filter": self._subjects.every_condemned, "offset": len(found)}
            state = (await self._info(question)).get("state", {})
            page = state.get("subjects") or {}
            found.update(Position(int(subject.rpartition(".")[2])) for subject in page)
            if not page or len(found) >= LETTERS_MAX:
                return frozenset(found)

    async def count(self) -> int:
        """How many letters there are. Raises `Lost` and `Refused`."""
        return int((await self._info({})).get("state", {}).get("messages", 0))

    async def read(self, *, limit: int = LETTERS_MAX) -> list[DeadLetter]:
        """The latest letters, the oldest of them first. Raises `Lost` and `Refused`."""
        last = int((await self._info({})).get("state", {}).get("last_seq", 0))
        letters: list[DeadLetter] = []
        while last > 0 and len(letters) < limit:
            verb = f"STREAM.MSG.GET.{self._subjects.dead_stream}"
            try:
                answer = await self._link.api(verb, {"seq": last}, timeout_s=ANSWER_S)
                letters.append(_opened(answer["message"]))
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


def _opened(message: Mapping[str, Any]) -> DeadLetter:
    """A letter as it was kept. One that somebody else wrote into the stream is told as what it is."""
    body = base64.b64decode(message.get("data") or "")
    at = int(datetime.fromisoformat(message["time"]).timestamp() * SECOND)
    head, _, data = body.partition(b"\n")
    try:
        letter = msgspec.json.decode(head, type=DeadLetter)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return DeadLetter(
            position=Position(0), subject=message["subject"], reason="no letter of ours", by="", size=len(body), at=at
        )
    return msgspec.structs.replace(letter, at=at, data=data)
