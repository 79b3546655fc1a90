"""Notices on their way to a real web server and a real mail server: each once, in order, whatever these answer."""

import contextlib
import hashlib
import hmac
import json
import socketserver
import threading
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from tenure.cli import outbox as outbox_module
from tenure.cli import weekly
from tenure.cli.notices import Event, Notice
from tenure.cli.outbox import Outbox
from tenure.cli.sending import Channel, Mail, SlackHook, Webhook, mail_to, web_address
from tenure.domain.refusal import Refusal
from tenure.v1 import budgets_pb2, hosts_pb2
from tests.integration.health.test_repair_plug import Reply, web_server

SECRET = b"a secret"


def notice(number: int, text: str = "Job j1 of a: run 1 started.") -> Notice:
    return Notice(
        key=f"j1.{number}:started",
        event=Event.STARTED,
        job="j1",
        run=f"j1.{number}",
        budget="a",
        user="ana",
        at=1_790_000_000_000,
        text=text,
    )


def sent(channel: Channel, *notices: Notice) -> tuple[list[str], int]:
    """The keys of what arrived, and how many were given up."""
    arrived: list[str] = []
    box = Outbox(channel, lambda each: arrived.append(each.key), wait_first_s=0.001)
    for each in notices:
        box.put(each)
    return arrived, box.close()


def answers(*statuses: int) -> Reply:
    return lambda number: (statuses[min(number, len(statuses)) - 1], b"")


def test_a_webhook_is_sent_signed_json_in_order() -> None:
    with web_server(answers(204)) as (url, got):
        assert sent(Webhook(url=url, secret=SECRET), notice(1), notice(2)) == (["j1.1:started", "j1.2:started"], 0)
    assert [json.loads(body)["run"] for _, body in got] == ["j1.1", "j1.2"]
    headers, body = got[0]
    assert headers["Idempotency-Key"] == json.loads(body)["key"] == "j1.1:started"
    assert headers["X-Tenure-Signature"] == "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def test_a_hook_of_slacks_kind_gets_text_that_calls_nobody() -> None:
    with web_server(answers(200)) as (url, got):
        assert sent(SlackHook(url=url), notice(1, "Job j1 (<!channel> & co)\n is over.")) == (["j1.1:started"], 0)
    assert json.loads(got[0][1]) == {"text": "Job j1 (&lt;!channel&gt; &amp; co)\\n is over."}


def test_what_may_pass_is_sent_again_under_the_same_key() -> None:
    with web_server(answers(500, 429, 200)) as (url, got):
        assert sent(Webhook(url=url), notice(1), notice(2)) == (["j1.1:started", "j1.2:started"], 0)
    assert [headers["Idempotency-Key"] for headers, _ in got] == ["j1.1:started"] * 3 + ["j1.2:started"]


@pytest.mark.parametrize("status", [301, 400, 404])
def test_what_will_not_pass_is_given_up_and_the_next_is_sent(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with web_server(answers(status, 200)) as (url, got):
        assert sent(Webhook(url=f"{url}/hidden"), notice(1), notice(2)) == (["j1.2:started"], 1)
    said = capsys.readouterr().err
    assert len(got) == 2 and f"given up: it answered {status}" in said and "hidden" not in said


def test_a_receiver_that_is_away_is_given_up_after_some_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    with web_server(answers(200)) as (url, _):
        pass
    assert sent(Webhook(url=url), notice(1)) == ([], 1)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == outbox_module.ATTEMPTS and all("127.0.0.1: it cannot be reached" in line for line in said[:-1])


def test_more_than_may_wait_is_given_up_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "WAITING_MAX", 3)
    going_on, arrived = threading.Event(), threading.Event()

    class Slow:
        name = "a slow one"

        def send(self, _: Notice) -> None:
            arrived.set()
            assert going_on.wait(20)

    box = Outbox(Slow(), lambda _: None)
    box.put(notice(0))
    assert arrived.wait(20)
    for number in range(1, 6):
        box.put(notice(number))
    assert box.lost == 2
    going_on.set()
    assert box.close() == 2


def test_a_burst_keeps_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("tenure.cli.outbox.time.sleep", waits.append)
    with web_server(answers(200)) as (url, got):
        assert len(sent(Webhook(url=url), *map(notice, range(22)))[0]) == 22
    assert len(got) == 22 and len(waits) == 2 and all(15 < wait <= outbox_module.BURST_S for wait in waits)


def test_an_address_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("https://hooks.example.org/T0/secret\n")
    assert web_address(f"@{tmp_path / 'hook'}", field="--slack") == "https://hooks.example.org/T0/secret"
    assert "secret" not in repr(SlackHook(url="https://hooks.example.org/T0/secret"))


class _Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server as a message needs (RFC 5321)."""

    server: "_MailServer"

    def handle(self) -> None:
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            if verb == "DATA":
                self.say("354 go on")
                lines = []
                while (text := self.rfile.readline().decode()) not in (".\r\n", ""):
                    lines.append(text)
                self.server.got.append(message_from_string("".join(lines)))
                self.say("250 taken")
            elif verb == "RCPT":
                self.say(self.server.answers.pop(0) if self.server.answers else "250 known")
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 well")

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class _MailServer(socketserver.ThreadingTCPServer):
    def __init__(self, *answers: str) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.answers, self.got = list(answers), list[Message]()


@contextlib.contextmanager
def mail_server(*answers: str) -> Iterator[tuple[str, list[Message]]]:
    """A mail server that answers its first recipients so, and what it took."""
    with _MailServer(*answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"smtp://127.0.0.1:{server.server_address[1]}", server.got
        finally:
            server.shutdown()
            thread.join()


def mail(smtp: str) -> Mail:
    return mail_to("ana@example.org", {"--smtp": smtp, "--email-from": "gpus@example.org"}, password_file=None)


def test_mail_has_a_message_id_that_is_the_same_for_the_same_notice() -> None:
    with mail_server("451 later") as (smtp, got):
        assert sent(mail(smtp), notice(1), notice(2)) == (["j1.1:started", "j1.2:started"], 0)
        assert sent(mail(smtp), notice(1)) == (["j1.1:started"], 0)
    assert [each["Subject"] for each in got] == ["tenure: j1 started"] * 3
    assert (got[0]["From"], got[0]["To"]) == ("gpus@example.org", "ana@example.org")
    ids = [each["Message-ID"] for each in got]
    assert ids[0] == ids[2] != ids[1]
    assert str(got[0].get_payload()).strip() == "Job j1 of a: run 1 started."


def test_a_week_is_mailed_in_both_forms_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weekly, "WAIT_FIRST_S", 0.001)
    row = budgets_pb2.BudgetReportRow(path="a", leaf=True, owed_gpu_ms=3_600_000, delivered_gpu_ms=3_600_000)
    answer = budgets_pb2.BudgetReportResponse(rows=[row], since_ms=1_790_000_000_000, until_ms=1_790_604_800_000)
    week = weekly.Week(path="a", budgets=answer, hosts=hosts_pb2.HostReportResponse())
    with mail_server("451 later") as (smtp, got):
        weekly.post(week, mail(smtp))
        weekly.post(week, mail(smtp))
    text, html = list(got[0].walk())[1:]
    assert str(got[0]["Subject"]).startswith("GPU time of a, 2026-09-")
    assert "| a | 1.00 | 1.00 | 100.0% |" in str(text.get_payload()) and html.get_content_type() == "text/html"
    assert got[0]["Message-ID"] == got[1]["Message-ID"]
    with mail_server("550 no") as (smtp, got), pytest.raises(Refusal, match="answered 550"):
        weekly.post(week, mail(smtp))


def test_mail_to_nobody_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with mail_server("550 who is that") as (smtp, got):
        assert sent(mail(smtp), notice(1)) == ([], 1)
    assert not got and "given up: the mail server answered 550" in capsys.readouterr().err


def test_a_password_is_not_said_to_a_server_without_encryption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("secret")
    with mail_server() as (smtp, got):
        given = {"--smtp": smtp.replace("//", "//ana@"), "--email-from": ""}
        channel = mail_to("ana@example.org", given, password_file=tmp_path / "password")
        assert sent(channel, notice(1)) == ([], 1)
    assert not got and "STARTTLS" in capsys.readouterr().err
