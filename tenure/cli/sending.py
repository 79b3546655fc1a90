"""How a notice reaches somebody: a web server, a hook of Slack's kind, or mail. What may pass is tried again.

Whoever receives it knows it by its key (`Idempotency-Key`, `Message-ID`): the same one is the same notice.
"""

import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from tenure.cli.notices import Notice
from tenure.cli.terminal import clean
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis

ANSWER_S = 10.0
_PASSING = frozenset({408, 425, 429})


class Passing(Exception):
    """It did not work, and may work later."""


class Refused(Exception):
    """It did not work, and will not."""


class Channel(Protocol):
    """Where notices go. `name` is shown; it holds no secret."""

    @property
    def name(self) -> str:
        """As what it is shown."""

    def send(self, notice: Notice) -> None:
        """Return when the receiver has it. Raises `Passing` or `Refused`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A web server that is sent JSON; with a secret it is signed as the repair plug's: HMAC over the body."""

    url: str = field(repr=False)
    secret: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """Its host."""
        return f"the webhook at {urlsplit(self.url).hostname}"

    def send(self, notice: Notice) -> None:
        """See `Channel.send`."""
        body = json.dumps(notice.document).encode()
        signed = {}
        if self.secret:
            signed["X-Tenure-Signature"] = "sha256=" + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        _post(self.url, body, {"Idempotency-Key": notice.key, **signed})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackHook:
    """An incoming hook of Slack, Mattermost or the like: `{"text": ...}`."""

    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """Its host."""
        return f"the hook at {urlsplit(self.url).hostname}"

    def send(self, notice: Notice) -> None:
        """See `Channel.send`."""
        text = clean(notice.text)
        for letter, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # nobody is called by a job's name
            text = text.replace(letter, shown)
        _post(self.url, json.dumps({"text": text}).encode(), {"Idempotency-Key": notice.key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Mail by SMTP. With a user, nothing is said before the connection is encrypted."""

    server: SplitResult = field(repr=False)
    to: str
    sender: str
    password: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The address."""
        return self.to

    def send(self, notice: Notice) -> None:
        """See `Channel.send`."""
        subject = f"tenure: {notice.job} {notice.event.replace('_', ' ')}"
        self.send_text(notice.key, subject, clean(notice.text) + "\n", at=notice.at)

    def send_text(self, key: str, subject: str, text: str, *, at: Millis, html: str = "") -> None:
        """A message that is known by `key`, with `html` as its other form. Raises `Passing` or `Refused`."""
        message = EmailMessage()
        message["Subject"] = clean(subject)
        message["From"], message["To"], message["Date"] = self.sender, self.to, formatdate(at / 1000)
        digest = hashlib.sha256(f"{key} {self.to}".encode()).hexdigest()[:32]
        message["Message-ID"] = f"<{digest}@tenure>"
        message.set_content(text)
        if html:
            message.add_alternative(html, subtype="html")
        try:
            self._hand_over(message)
        except smtplib.SMTPRecipientsRefused as refused:
            code = next(iter(refused.recipients.values()))[0]
            raise (Refused if code >= 500 else Passing)(f"the mail server answered {code}") from None
        except smtplib.SMTPResponseException as answer:
            raise (Refused if answer.smtp_code >= 500 else Passing)(
                f"the mail server answered {answer.smtp_code}"
            ) from None
        except smtplib.SMTPNotSupportedError:
            raise Refused("the mail server offers no encryption (STARTTLS)") from None
        except (smtplib.SMTPException, OSError) as error:
            raise Passing(f"the mail server cannot be reached: {type(error).__name__}") from None

    def _hand_over(self, message: EmailMessage) -> None:
        host, user = self.server.hostname or "", unquote(self.server.username or "")
        if self.server.scheme == "smtps":
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(
                host, self.server.port or 465, timeout=ANSWER_S, context=ssl.create_default_context()
            )
        else:
            smtp = smtplib.SMTP(host, self.server.port or 25, timeout=ANSWER_S)
        with smtp:
            smtp.ehlo()
            if user and self.server.scheme == "smtp":
                smtp.starttls(context=ssl.create_default_context())
            if user:
                smtp.login(user, self.password)
            smtp.send_message(message)


def web_address(text: str, *, field: str) -> str:
    """An address of a web server, or @ and the file that has it. Raises `Refusal`, which does not show it."""
    fix = "write https://host/path, or @FILE with that in it"
    address = _secret_of(Path(text[1:]), field=field) if text.startswith("@") else text
    try:
        parts = urlsplit(address)
        good = bool(parts.hostname) and (parts.port or 1) > 0 and address.isascii() and address.isprintable()
    except ValueError:
        parts, good = SplitResult("", "", "", "", ""), False
    if not good or " " in address:
        raise Refusal(field=field, problem="no address of a web server", fix=fix)
    if parts.scheme not in ("http", "https"):
        raise Refusal(field=field, problem=f"{parts.scheme[:20]!r} is neither http nor https", fix=fix)
    if parts.username is not None or parts.password is not None:
        raise Refusal(field=field, problem="a user or password in the address", fix="leave it out: it is not sent")
    return address


def mail_to(address: str, given: Mapping[str, str], *, password_file: Path | None) -> Mail:
    """Where mail goes. `given`: the values of `--smtp` and `--email-from`. Raises `Refusal`."""
    sender = given["--email-from"] or address
    for option, each in (("--email", address), ("--email-from", sender)):
        name, at, domain = each.rpartition("@")
        if not (name and at and domain) or not each.isascii() or not each.isprintable() or set(" <>,;\"'") & set(each):
            raise Refusal(field=option, problem=f"{each[:60]!r} is no address of mail", fix="write name@example.org")
    smtp, fix = given["--smtp"], "write smtp://host:port, smtp://user@host:587 or smtps://user@host"
    if not smtp:
        raise Refusal(field="--smtp", problem="no mail server is set, so no mail can be sent", fix=fix)
    try:
        server = urlsplit(smtp)
        good = server.scheme in ("smtp", "smtps") and bool(server.hostname) and (server.port or 1) > 0
    except ValueError:
        good = False
    if not good or server.path.strip("/"):
        raise Refusal(field="--smtp", problem="no address of a mail server", fix=fix)
    if server.password is not None:
        raise Refusal(field="--smtp", problem="a password in the address", fix="name a --smtp-password-file")
    if bool(server.username) != (password_file is not None):
        raise Refusal(field="--smtp", problem="a user and a password go together", fix="give both or neither")
    password = "" if password_file is None else _secret_of(password_file, field="--smtp-password-file")
    return Mail(server=server, to=address, sender=sender, password=password)


def secret_from(path: Path) -> bytes:
    """What signs webhooks. Raises `Refusal`."""
    return _secret_of(path, field="--secret-file").encode()


def _secret_of(path: Path, *, field: str) -> str:
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        raise Refusal(field=field, problem=problem, fix="name a file that you may read") from None
    if not secret:
        raise Refusal(field=field, problem=f"{path} is empty", fix="write one line into it")
    return secret


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send it, and follow no redirect. Raises `Passing` or `Refused`, which do not show the address."""
    import urllib3

    try:
        answer = urllib3.request(
            "POST",
            url,
            body=body,
            headers={"Content-Type": "application/json", **headers},
            timeout=ANSWER_S,
            retries=False,
            redirect=False,
            preload_content=False,
        )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Passing(f"it cannot be reached: {type(error).__name__}") from None
    status = answer.status
    answer.close()
    if status >= 500 or status in _PASSING:
        raise Passing(f"it answered {status}")
    if not 200 <= status < 300:
        raise Refused(f"it answered {status}")
