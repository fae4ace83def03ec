"""Parsing of forms and decoding of images, whatever is sent."""

import asyncio
import email
import email.message
import io
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from urllib3 import encode_multipart_formdata

from trainyard.serving import uploads

BOUNDARY = "xXboundaryXx"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
# Forms that break a careless parser.
AWKWARD = st.lists(
    st.sampled_from(
        [
            *(b"\r", b"\n", b"--", b"\r\n--", b"\r\n\r\n", b"\0", b"\xff", b"\x85", b"a"),
            # Lines that only begin like a delimiter, as a form inside a form has them.
            *(f"\r\n--{BOUNDARY}{more}".encode() for more in ("y", "-", "0\r\n", "-x--", " z")),
        ]
    )
).map(b"".join)


def form(*parts: tuple[str, str, bytes]) -> bytes:
    fields = [(field, (file, content, "image/jpeg")) for field, file, content in parts]
    return encode_multipart_formdata(fields, BOUNDARY)[0]


def image(kind: str, mode: str = "RGB", size: tuple[int, int] = (5, 4)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1).save(file, kind)
    return file.getvalue()


def refused(*parts: tuple[str, str, bytes]) -> tuple[int, str]:
    with pytest.raises(uploads.UploadError) as caught:
        list(uploads.pictures(TYPE, form(*parts)))
    return caught.value.status, str(caught.value)


@given(st.lists(AWKWARD))
def test_a_form_comes_out_as_it_went_in(contents):
    parts = [("images", f"{i}.jpg", content) for i, content in enumerate(contents)]
    assert uploads.form(TYPE, form(*parts)) == [uploads.FormPart(*part) for part in parts]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_form_that_is_cut_off_is_refused(content, length):
    whole = form(("images", "a.jpg", content))
    with pytest.raises(uploads.UploadError):
        uploads.form(TYPE, whole[: min(length, len(whole) - 4)])


@given(st.binary(max_size=300))
def test_bytes_that_are_no_form_are_refused(body):
    for kind in (TYPE, "multipart/form-data", "image/jpeg", "", "multipart/form-data; boundary="):
        with pytest.raises(uploads.UploadError):
            list(uploads.pictures(kind, body))


HEADERS = st.lists(
    st.sampled_from(
        [
            *("Content-Disposition: ", "form-data; ", "name", "filename", "=", "*", '"', "'", ";"),
            *("=?utf-8?b?!?=", ")", "(", "\\", "\r\n ", "\n", ".", " ", "%", "%4", "\0", "\u2028"),
            "1",
        ]
    ),
    max_size=20,
).map("".join)


@given(HEADERS)
@example("Content-Disposition: form-data; 1=?utf-8?b?!?=)00; .\r\n *")  # by newer parsers of Python
def test_headers_that_are_malformed_are_read_or_refused(headers):
    body = f"--{BOUNDARY}\r\n{headers}\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode()
    # Any other error than this one fails the test.
    with suppress(uploads.UploadError):
        uploads.form(TYPE, body)
    with suppress(uploads.UploadError):
        uploads.form(f"multipart/form-data; {headers}", body)


def test_a_form_has_bounds():
    long = form(("images", "x" * uploads.MAX_HEADER_BYTES, b""))
    with pytest.raises(uploads.UploadError, match="part 0 of the form does not name its field"):
        uploads.form(TYPE, long)
    for boundary in ("x" * 71, "x\u00e9", "x\ty", "x;y"):
        with pytest.raises(uploads.UploadError) as caught:
            uploads.form(f'multipart/form-data; boundary="{boundary}"', b"")
        assert caught.value.status == 415


DISPOSITION = 'Content-Disposition: form-data; name="images"'
HOSTILE = {
    "an open quote": f'{DISPOSITION}; a="' + ";" * 7000,
    "a continued line": f'{DISPOSITION}; a="' + ";\r\n ;" * 1200,
    "a line of another end": f'{DISPOSITION}; a="' + ";\r ;" * 1200,
    "many parameters": DISPOSITION + "; a=b" * 1400,
    "many headers": DISPOSITION + "\r\na: b" * 1000,
    "many short lines": DISPOSITION + "\na:" * 9,
}


class Work:
    """Counts what Python's parser gets: the sum of its lines' squares, as it takes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        parse = email.message_from_string

        def counted(text: str) -> email.message.Message:
            self.done += sum(len(line) ** 2 for line in re.split(r"[\r\n]+(?![ \t])", text))
            return parse(text)

        monkeypatch.setattr(email, "message_from_string", counted)


@pytest.mark.parametrize("headers", HOSTILE.values(), ids=HOSTILE)
def test_hostile_headers_are_refused_unread(headers, monkeypatch):  # F39
    work = Work(monkeypatch)
    part = f"--{BOUNDARY}\r\n{headers}\r\n\r\nx\r\n"
    with pytest.raises(uploads.UploadError, match=r"part 0 of the form has \d+ headers") as caught:
        uploads.form(TYPE, (part * uploads.MAX_IMAGES + f"--{BOUNDARY}--\r\n").encode())
    assert caught.value.status == 400
    assert work.done <= 100**2  # of the request's own header


def test_the_worst_headers_that_are_taken_are_little_work(monkeypatch):
    work = Work(monkeypatch)
    line = f'{DISPOSITION}; a="'.ljust(uploads.MAX_LINE_BYTES, ";")
    part = f"--{BOUNDARY}\r\n{line}\r\n\r\nx\r\n"
    body = part * uploads.MAX_IMAGES + f"--{BOUNDARY}--\r\n"
    assert len(uploads.form(TYPE, body.encode())) == uploads.MAX_IMAGES
    assert work.done <= uploads.MAX_IMAGES * uploads.MAX_LINE_BYTES**2 + 100**2


def test_a_long_content_type_is_refused_unread(monkeypatch):  # F39
    work = Work(monkeypatch)
    with pytest.raises(uploads.UploadError) as caught:
        uploads.form(f'{TYPE}; a="' + ";" * 60_000, form())
    assert caught.value.status == 415
    assert work.done == 0


def test_a_preamble_an_epilogue_and_blanks_behind_a_delimiter_say_nothing():
    body = form(("images", "a", b"x"))
    padded = body.replace(f"--{BOUNDARY}\r\n".encode(), f"--{BOUNDARY} \t\r\n".encode())
    noisy = b"not shown\r\n" + padded + f"--{BOUNDARY}\r\nnot shown".encode()
    assert uploads.form(TYPE, noisy) == [uploads.FormPart("images", "a", b"x")]


def test_names_of_files_are_text():
    [part] = uploads.form(TYPE, form(("images", "Käse.jpg", b"x")))
    assert part.file == "Käse.jpg"
    raw = f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n--{BOUNDARY}--".encode()
    with pytest.raises(uploads.UploadError, match="does not name its field"):
        uploads.form(TYPE, raw)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_images_of_any_mode_become_rgb(kind, mode):
    if kind == "JPEG" and mode == "P":
        mode = "CMYK"
    [found] = uploads.pictures(TYPE, form(("images", "", image(kind, mode))))
    assert (found.mode, found.size) == ("RGB", (5, 4))


@given(st.binary(max_size=400), st.sampled_from(["PNG", "JPEG", "WEBP"]), st.integers(0, 200))
def test_a_damaged_image_is_an_image_or_refused(noise, kind, at):
    content = image(kind)
    for damaged in (content[:at] + noise, content[:at] + noise + content[at:]):
        # Any other error than this one fails the test.
        with suppress(uploads.UploadError):
            list(uploads.pictures(TYPE, form(("images", "a", damaged))))


def test_what_is_refused_is_named():
    good = ("images", "a.png", image("PNG"))
    assert refused(good, ("images", "b.png", b"no")) == (
        400,
        "image 1 ('b.png') is not a readable image (JPEG, PNG, WEBP): cannot identify it",
    )
    assert refused(("images", "", image("GIF", "L")))[1].startswith("image 0 is not a readable")
    assert refused(good, ("file", "b", b""))[1].startswith("the form has a field 'file'")
    assert refused()[1].startswith("the form has no image")
    assert refused(*[good] * 65) == (
        413,
        "the request has more than 64 images: send fewer at a time",
    )


@pytest.mark.parametrize("side", [8_000, 10_000, 20_000])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(side):
    packed = zlib.compressobj()

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + sum_

    size = side.to_bytes(4, "big")
    content = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size + size + b"\x08\x00\x00\x00\x00")
        + chunk(b"IDAT", packed.compress(b"\0" * 1000) + packed.flush())
        + chunk(b"IEND", b"")
    )
    status, said = refused(("images", "bomb.png", content))
    assert (status, "'bomb.png'" in said) == (413, True)


@pytest.mark.parametrize("announced", [True, False])
def test_a_large_body_is_not_read_to_its_end(announced):
    read = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"\0" * 2**20

    headers = {"content-length": str(100 * 2**20)} if announced else {}
    with pytest.raises(uploads.UploadError, match="larger than 32 MiB"):
        asyncio.run(uploads.read_body(headers, stream()))
    assert read == (0 if announced else 33)


def test_images_of_a_request_are_decoded_one_after_another(monkeypatch):  # F40
    """Each may have 50 million pixels; 64 of them at once would take the replica's memory."""
    decoded = []
    decode = uploads._decode
    monkeypatch.setattr(
        uploads, "_decode", lambda index, part: decoded.append(index) or decode(index, part)
    )
    parts = [("images", "", image("PNG", "RGB"))] * 3
    for index, _ in enumerate(uploads.pictures(TYPE, form(*parts))):
        assert decoded == [*range(index + 1)]
