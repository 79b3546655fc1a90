"""Writes the reference in docs/api.md from the protos and who may call what: `make api`.

What stands above the marker is written by hand and stays. Below it is one section a service: its methods, with what
they need and whom that lets in, and its messages, field by field. All words are the comments in `proto/tenure/v1/`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from services.gateway.identity.methods import METHODS
from tenure.domain.rights import RIGHTS, Standing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/api.md"
PROTOS = tuple(sorted((ROOT / "proto").glob("tenure/v1/*.proto")))
MARKER = "<!-- What follows is made from proto/tenure/v1 by `make api`: change it there. -->\n"

_SYNTAX, _MESSAGE, _SERVICE, _INNER = 12, 4, 6, 2
"""Numbers of fields in `FileDescriptorProto`, and of fields and methods in what those hold: how comments are found."""
_INSTANT: Final = re.compile(r"(at|start_p\d\d|until|since|now|seen|deadline|start|began|drained|ended)_ms")
_LENGTH: Final = re.compile(r"(?<!start_)(ran|runtime|grace|p50|p90|longest)_ms")
_TYPES = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}
Comments = dict[tuple[int, ...], str]


def files() -> list[FileDescriptorProto]:
    """The protos as protoc reads them, with their comments."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'proto'}", "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={made}", *map(str, PROTOS)], check=True)
        return list(FileDescriptorSet.FromString(made.read_bytes()).file)


def comments_of(file: FileDescriptorProto) -> Comments:
    """Every comment in one line, by the path of what it stands before."""
    return {tuple(at.path): " ".join(at.leading_comments.split()) for at in file.source_code_info.location}


def said(comments: Comments, *path: int, what: str) -> str:
    """What is said of something. Raises `ValueError` where nothing is."""
    if comment := comments.get(path):
        return re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", comment).replace("|", r"\|")
    raise ValueError(f"{what} has no comment in its .proto: say there what it is")


def reference() -> Iterator[str]:
    """What follows the marker."""
    for file in files():
        comments = comments_of(file)
        for number, service in enumerate(file.service):
            yield f"\n## {service.name}\n"
            yield f"`proto/{file.name}`: {said(comments, _SERVICE, number, what=service.name)}\n"
            for each, method in enumerate(service.method):
                what = said(comments, _SERVICE, number, _INNER, each, what=f"{service.name}.{method.name}")
                yield from section_of(method, f"/{file.package}.{service.name}/{method.name}", what)
        for number, message in enumerate(file.message_type):
            if not message.options.map_entry:
                yield from table_of(message, comments, number)


def section_of(method: MethodDescriptorProto, path: str, what: str) -> Iterator[str]:
    """One method. Raises `KeyError` for one that the table of rights does not know."""
    needs = METHODS[path]
    assert needs.right is not None, f"{path}: who may call what everybody may?"
    who = [standing.value for standing in Standing if standing in RIGHTS[needs.right]]
    asked, answer = (link(name) for name in (method.input_type, method.output_type))
    stream = "a stream of " if method.server_streaming else ""
    yield f"### {path.removeprefix('/tenure.v1.')}\n"
    yield f"{asked} → {stream}{answer}. {what}\n"
    about = f" over {needs.about}" if needs.about else ""
    yield f"*Needs the right* {needs.right.value}{about}: {', '.join(who)}.\n"


def link(type_name: str) -> str:
    """A message's name as a link to its table."""
    name = type_name.rpartition(".")[2]
    return f"[{name}](#{name.lower()})"


def table_of(message: DescriptorProto, comments: Comments, number: int) -> Iterator[str]:
    """One message, a row a field."""
    yield f"### {message.name}\n"
    yield f"{said(comments, _MESSAGE, number, what=message.name)}\n"
    if not message.field:
        return
    yield "| field | type | unit | what |"
    yield "|---|---|---|---|"
    for each, field in enumerate(message.field):
        what = said(comments, _MESSAGE, number, _INNER, each, what=f"{message.name}.{field.name}")
        yield f"| `{field.name}` | {kind_of(field, message)} | {unit_of(field.name)} | {what} |"
    yield ""


def kind_of(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """The type as one writes it in a proto."""
    for entry in message.nested_type:
        if entry.options.map_entry and field.type_name.endswith(f".{message.name}.{entry.name}"):
            return f"map of {_TYPES[entry.field[0].type]} to {_TYPES[entry.field[1].type]}"
    name = link(field.type_name) if field.type_name else _TYPES[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    return f"{name}, may be absent" if field.proto3_optional else name


def unit_of(name: str) -> str:
    """The unit that a field's name ends with. Raises `ValueError` for milliseconds of what nobody said."""
    if name.endswith("_gpu_ms"):
        return "GPU-milliseconds"
    if _LENGTH.search(name):
        return "milliseconds"
    if _INSTANT.search(name):
        return "epoch milliseconds"
    if name.endswith("_ms"):
        raise ValueError(f"{name}: is it an instant or a length of time?")
    endings = {"_percent": "percent", "_bytes": "bytes", "offset": "bytes", "fraction": "0 to 1"}
    endings |= {"availability": "0 to 1", "automatic_share": "0 to 1"}
    return next((unit for ending, unit in endings.items() if name.endswith(ending)), "")


def by_hand() -> str:
    """What stands above the marker."""
    head, marker, _ = PAGE.read_text().partition(MARKER)
    assert marker, f"{PAGE.name} has lost its marker: {MARKER}"
    return head


def text() -> str:
    """The whole page."""
    return by_hand() + MARKER + "\n".join(reference()).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
