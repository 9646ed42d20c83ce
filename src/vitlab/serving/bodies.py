"""Read the images of a request: one as the body, or one and more as files of a form; all of it within limits."""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from vitlab.serving.refusal import Refused

FORM = "multipart/form-data"
MOST_FIELDS = 16  # of a form, apart from files; they are ignored
EMPTY = "the request holds no image; send the bytes of an image file, or files in a form (multipart/form-data)"


class SentImage(NamedTuple):
    """An image file as it came, and what to call it in a sentence to the client."""

    name: str
    content: bytes


async def read_images(request: Request, most_bytes: int, most_images: int) -> list[SentImage]:
    """Read the image files of a request. Raises Refused for one without any, or beyond the limits."""
    body = await read_body(request, most_bytes)
    if request.headers.get("content-type", "").lower().startswith(FORM):
        images = await split_form(request, body, most_images)
    else:
        images = [SentImage("the image", body)] if body else []
    if not images:
        raise Refused(400, EMPTY)
    for image in images:
        if not image.content:
            raise Refused(400, f"{image.name} is empty; send the bytes of an image file")
    return images


async def read_body(request: Request, most: int) -> bytes:
    """Read all bytes of a body, chunked or not. Raises Refused for more than `most`, as soon as that is known."""
    refused = Refused(
        413, f"the request has more than the {most:,} bytes that are allowed; send smaller or fewer images"
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise refused
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise refused
    except ClientDisconnect:
        raise Refused(400, "the client left before it had sent all bytes") from None
    return bytes(body)


async def split_form(request: Request, body: bytes, most: int) -> list[SentImage]:
    """Take the files out of a form. Raises Refused for one that is damaged or holds more than `most` files."""

    async def feed() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, feed(), max_files=most, max_fields=MOST_FIELDS)
    parser.spool_max_size = len(body) + 1  # no file is written to disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        too_many = isinstance(error, MultiPartException) and error.message.startswith("Too many files")
        reason = f"holds more than {most} files" if too_many else "is damaged, or has too many or too long fields"
        raise Refused(400, f"the form {reason}; send each image as one file") from None
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    return [SentImage(f"file {number}", await file.read()) for number, file in enumerate(files, start=1)]
