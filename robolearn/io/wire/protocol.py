"""Methods of a gRPC service and their messages: protocol buffers, described here, so that no code is generated.

A message is a mapping of fields to types, numbered in their order: add new ones at the end. A field with a type alone
must be there; ``optional`` and ``repeated`` ones may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import Edition, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from robolearn.core import BadInput

Fields = Mapping[str, Mapping[str, str]]
SHORT = 4096  # bytes of a message of a few numbers and names
_FIELDS: dict[str, Mapping[str, str]] = {}  # full name of a message → field → type


@dataclass(frozen=True)
class Method:
    """One method of a service: its path, and the classes of its request and of its reply."""

    service: str
    name: str
    request: Any
    reply: Any

    @property
    def path(self) -> str:
        """Its name in a call."""
        return f"/{self.service}/{self.name}"


def make_methods(service: str, messages: Fields) -> list[Method]:
    """The methods of `service`, for each its ``<Name>Request`` and ``<Name>Reply``, in the order of `messages`."""
    package = service.lower()
    file = FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package, syntax="editions")
    file.edition = Edition.EDITION_2023
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, words) in enumerate(fields.items(), 1):
            label, kind = ("optional", words) if " " not in words else words.split()
            message.field.add(
                name=field,
                number=number,
                type=FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}"),
                label=FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}"),
            )
    pool = DescriptorPool()
    pool.Add(file)
    kinds = [GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages]
    _FIELDS.update({kind.DESCRIPTOR.full_name: messages[kind.DESCRIPTOR.name] for kind in kinds})
    names = [name.removesuffix("Request") for name in messages if name.endswith("Request")]
    return [Method(service, name, *pair) for name, *pair in zip(names, kinds[::2], kinds[1::2], strict=True)]


def parse(kind: Any, content: bytes) -> Any:
    """The message of class `kind` in `content`, which may be anything. Raises `BadInput`: no protocol buffer, a field
    that is missing, a number that is not finite."""
    name, fields = kind.DESCRIPTOR.name, _FIELDS[kind.DESCRIPTOR.full_name]
    try:
        message = kind.FromString(content)
    except DecodeError as error:
        raise BadInput(f"message {name}", got=f"no protocol buffer ({error})", expected="one") from None
    for field, words in fields.items():
        if " " not in words and not message.HasField(field):
            raise BadInput(f"message {name}", got=f"no {field}", available=fields)
        if words.endswith("double") and not math.isfinite(getattr(message, field)):
            raise BadInput(f"message {name}: {field}", got=getattr(message, field), expected="a finite number")
    return message
