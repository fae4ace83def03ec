"""Turns a request's body into pictures: parses multipart/form-data, decodes images, within bounds.

Starlette's own forms need a package that the nodes lack, and do not bound a body's size.
"""

import email
import io
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

from PIL import Image

from trainyard.pictures import reason, rgb

FIELD = "images"
MAX_IMAGES = 64  # of a request
MAX_BODY_BYTES = 32 * 2**20
# Of one part. Python's parser takes quadratic time for a line: 0.1 s for 8 KiB, in each part.
MAX_HEADERS = 8
MAX_LINE_BYTES = 2**10  # a header with its continuation lines, or the request's own
MAX_HEADER_BYTES = MAX_HEADERS * MAX_LINE_BYTES
MAX_PIXELS = 50_000_000  # bound of one image: a small file can unpack to gigabytes
FORMATS = ("JPEG", "PNG", "WEBP")
LINE_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(?![ \t])")
BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")  # RFC 2046


class UploadError(Exception):
    """The request cannot be answered; `status` is HTTP's, the text says why and what to do."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class FormPart:
    """One part of a form: its field, the name of its file ("" without one), its content."""

    field: str
    file: str
    content: bytes


async def read_body(headers: Mapping[str, str], stream: AsyncIterator[bytes]) -> bytes:
    """Reads a request's body.

    Raises:
        UploadError: 413 once it has, or announces, too many bytes.
    """
    announced = headers.get("content-length", "")
    body = bytearray()
    size = int(announced) if announced.isdigit() else 0
    while size <= MAX_BODY_BYTES:
        chunk = await anext(stream, None)
        if chunk is None:
            return bytes(body)
        body += chunk
        size = max(size, len(body))
    raise UploadError(
        413, f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB: send less at a time"
    )


def pictures(content_type: str, body: bytes) -> Iterator[Image.Image]:
    """Yields the images of a form, decoded one after another, in RGB and in the request's order.

    Use each before the next one: together they may take gigabytes.

    Raises:
        UploadError: 400 names the part that is not an image; 413 if there are too many, or one is
            too large; 415 for a body that is not a form.
    """
    parts = form(content_type, body)
    for part in parts:
        if part.field != FIELD:
            raise UploadError(
                400, f"the form has a field {part.field[:80]!r}: name each image's {FIELD!r}"
            )
    if not parts:
        raise UploadError(400, f"the form has no image: send files in fields named {FIELD!r}")
    return (_decode(index, part) for index, part in enumerate(parts))


def form(content_type: str, body: bytes) -> list[FormPart]:
    """Parses multipart/form-data (RFC 7578).

    A delimiter is a whole line: a file may hold one that only begins like it.

    Raises:
        UploadError: 415 for another type, 400 for an incomplete or malformed form, 413 for one with
            too many parts.
    """
    boundary = _boundary(content_type)
    if boundary is None:
        raise UploadError(415, f"send a form (multipart/form-data), as `curl -F {FIELD}=@a.jpg`")
    line = rb"\r\n--" + re.escape(boundary) + rb"(?P<last>--(?=[ \t]*(?:\r\n|\Z)))?"
    delimiter = re.compile(line + rb"(?(last)|[ \t]*(?=\r\n))")
    whole = b"\r\n" + body
    parts: list[FormPart] = []
    start = None  # of a part; content before the first delimiter is ignored
    for found in delimiter.finditer(whole):
        if start is not None:
            if len(parts) == MAX_IMAGES:
                raise UploadError(
                    413, f"the request has more than {MAX_IMAGES} images: send fewer at a time"
                )
            parts.append(_part(len(parts), whole[start : found.start()]))
        if found["last"]:
            return parts
        start = found.end()
    raise UploadError(400, "the form has no end: it was cut off; send it again")


def _boundary(content_type: str) -> bytes | None:
    """Return a form's boundary; None if it is not a form."""
    if len(content_type) > MAX_LINE_BYTES:
        return None
    header = email.message_from_string(f"Content-Type: {content_type}")
    boundary = header.get_boundary("")
    if header.get_content_type() != "multipart/form-data" or not BOUNDARY.fullmatch(boundary):
        return None
    return boundary.encode()


def _part(index: int, raw: bytes) -> FormPart:
    end = raw.find(b"\r\n\r\n", 0, MAX_HEADER_BYTES)
    lines = LINE_END.split(raw[2 : max(end, 2)])
    if len(lines) > MAX_HEADERS or max(map(len, lines)) > MAX_LINE_BYTES:
        raise UploadError(
            400,
            f"part {index} of the form has {len(lines)} headers, the longest of "
            f"{max(map(len, lines))} bytes; at most {MAX_HEADERS} of {MAX_LINE_BYTES} bytes are "
            "accepted: send only the name of the field and a shorter file name",
        )
    # With the parser's newer policies a kilobyte of parameters takes a quarter of a second, and
    # some malformed headers raise an IndexError.
    headers = email.message_from_string(raw[2 : max(end, 2)].decode(errors="replace"))
    field = headers.get_param("name", header="content-disposition")
    if end < 0 or not isinstance(field, str):
        raise UploadError(400, f"part {index} of the form does not name its field")
    return FormPart(field, headers.get_filename() or "", raw[end + 4 :])


def _decode(index: int, part: FormPart) -> Image.Image:
    name = f"image {index}" + (f" ({part.file[:80]!r})" if part.file else "")
    try:
        image = Image.open(io.BytesIO(part.content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise UploadError(
                413,
                f"{name} has {image.width} x {image.height} pixels, at most "
                f"{MAX_PIXELS // 1_000_000} million are accepted: send a smaller image",
            )
        return rgb(image)
    except UploadError:
        raise
    except Image.DecompressionBombError as error:
        raise UploadError(413, f"{name} is too large: {error}; send a smaller image") from None
    except Exception as error:  # decoders of damaged files may raise anything
        raise UploadError(
            400, f"{name} is not a readable image ({', '.join(FORMATS)}): {reason(error)}"
        ) from None
