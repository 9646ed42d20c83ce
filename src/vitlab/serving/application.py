"""The server of one bundle: what may be asked of it, and how a request is answered or refused.

C channels, S image_size, K classes, N patches
"""

import asyncio
import hmac
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from vitlab.serving.answers import Answer, ErrorAnswer, Explanation, ImageAnswer, describe_image
from vitlab.serving.batching import BatchQueue, Row
from vitlab.serving.bodies import FORM, SentImage, read_images
from vitlab.serving.decoding import ImageLimits
from vitlab.serving.pictures import encode_picture, remove_patches
from vitlab.serving.refusal import Refused
from vitlab.serving.telemetry import Telemetry
from vitlab.serving.workers import Decoders
from vitlab_runtime.bundle import Bundle

if TYPE_CHECKING:  # it loads torch
    from vitlab.serving.explanation import Explainer

PAGE = Path(__file__).parent / "page"
PAGES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
SAFE = {  # the page loads nothing from elsewhere
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
COUNTED = ("/predict", "/explain")
BINARY = {"schema": {"type": "string", "format": "binary"}}
FILES = {"type": "object", "properties": {"file": {"type": "array", "items": BINARY["schema"]}}}
BODY = {"requestBody": {"required": True, "content": {"image/*": BINARY, FORM: {"schema": FILES}}}}
T = TypeVar("T")
MOST_REMOVED = 4096  # letters of a list of patches


@dataclass(frozen=True)
class Limits:
    """What a server accepts: most bytes and images of a request, most requests at once, seconds until an answer."""

    bytes: int
    images: int
    requests: int
    seconds: float


class Server:
    """A bundle with its decoders, its queue, and, where it has a Vision Transformer with weights, its explainer;
    otherwise `missing` says why heat maps and attention are missing."""

    def __init__(
        self,
        name: str,
        bundle: Bundle,
        explainer: "Explainer | str",
        limits: Limits,
        image_limits: ImageLimits,
        *,
        decoders: int,
        batch_size: int,
    ):
        self.name, self.bundle, self.limits = name, bundle, limits
        self.explainer = None if isinstance(explainer, str) else explainer
        self.missing = explainer if isinstance(explainer, str) else explainer.no_heat_map
        self.telemetry = Telemetry()
        self.decoders = Decoders(decoders, image_limits, bundle.preprocessing)
        self.queue = BatchQueue(bundle.score, batch_size, self.telemetry.note_batch)
        self.open, self.ready = 0, False

    @asynccontextmanager
    async def run(self, app: FastAPI) -> AsyncIterator[None]:
        """Start decoders and queue, score one image, and be ready until the server stops."""
        scoring = asyncio.create_task(self.queue.run())
        await self.decoders.start()
        size = self.bundle.preprocessing
        await self.queue.ask(np.zeros((size.channels, size.image_size, size.image_size), np.uint8))
        self.ready = True
        yield
        self.ready = False
        scoring.cancel()

    async def work(self, seconds: float | None, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a request, within its deadline and if there is room. Raises Refused."""
        if self.open >= self.limits.requests:
            raise Refused(503, f"{self.open} requests are being answered, and no more are accepted; try again later")
        seconds = min(seconds or self.limits.seconds, self.limits.seconds)
        self.open += 1
        try:
            async with asyncio.timeout(seconds):
                return await work()
        except TimeoutError:
            raise Refused(504, f"there was no answer within {seconds:g} seconds; try again later") from None
        finally:
            self.open -= 1

    async def receive(self, request: Request, most: int) -> list[SentImage]:
        """Read the images of a request, in half of the time that it has. Raises Refused."""
        try:
            async with asyncio.timeout(self.limits.seconds / 2):
                return await read_images(request, self.limits.bytes, most)
        except TimeoutError:
            raise Refused(408, "the request did not arrive in time; send it faster, or a smaller one") from None

    async def score(self, image: SentImage, removed: list[int]) -> tuple[np.ndarray, Row]:
        """Decode an image, without some patches, and score it. -> (C, S, S), and what the model says. Raises Refused,
        with the name of the image in its sentence."""
        try:
            pixels = await self.decoders.read(image.content)
        except Refused as refused:
            raise Refused(refused.status, f"{image.name} was not accepted: {refused.sentence}") from None
        if removed:
            pixels = remove_patches(pixels, removed, self.grid(), self.bundle.preprocessing.mean)
        return pixels, await self.queue.ask(pixels)

    def grid(self) -> tuple[int, int]:
        """Give rows and columns of patches; 8 each for a model without any, or without an explainer."""
        return self.explainer.grid if self.explainer else (8, 8)

    async def predict(self, request: Request, top_k: int, heat_map: bool) -> Answer:
        """Answer for each image of a request. Raises Refused."""
        if heat_map and self.missing:
            raise Refused(400, f"heat maps are not available: {self.missing}; leave out heat_map")
        images = await self.receive(request, self.limits.images)
        async with asyncio.TaskGroup() as tasks:
            doing = [tasks.create_task(self.answer(image, top_k, heat_map)) for image in images]
        return Answer(model=self.name, images=[one.result() for one in doing])

    async def answer(self, image: SentImage, top_k: int, heat_map: bool) -> ImageAnswer:
        pixels, row = await self.score(image, [])
        answer = describe_image(row, self.bundle.labels, top_k)
        if heat_map and self.explainer:
            found = await self.explainer.draw_heat_map(pixels, int(row["probabilities"].argmax()))
            columns = self.grid()[1]
            answer.heat_map = [found[start : start + columns] for start in range(0, len(found), columns)]
        return answer

    async def explain(self, request: Request, top_k: int, class_name: str | None, removed: list[int]) -> Explanation:
        """Explain the answer for one image, of which some patches are removed. Raises Refused."""
        labels, (rows, columns) = self.bundle.labels, self.grid()
        if class_name is not None and class_name not in labels:
            raise Refused(400, "class_name is none of the model's classes; /classes lists them")
        if any(place >= rows * columns for place in removed):
            raise Refused(400, f"remove names a patch that is not there; there are {rows * columns}, from 0 on")
        (image,) = await self.receive(request, 1)
        pixels, row = await self.score(image, removed)
        place = int(row["probabilities"].argmax()) if class_name is None else labels.index(class_name)
        views = await self.explainer.explain(pixels, place) if self.explainer else None
        return Explanation(
            answer=describe_image(row, labels, top_k),
            picture=encode_picture(pixels),
            grid=(rows, columns),
            class_name=labels[place],
            heat_map=views.heat_map if views else None,
            attention=views.attention if views else [],
            rollout=views.rollout if views else [],
            missing=self.missing,
        )


def build_app(server: Server, token: str | None, top_k: int) -> FastAPI:
    """Build the application: its paths, who may use them, and what becomes of errors."""
    app = FastAPI(title=f"vitlab: {server.name}", docs_url=None, redoc_url=None, lifespan=server.run)
    bearer = HTTPBearer(auto_error=False)

    def check_token(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        sent = given.credentials if given else ""
        if token is not None and not hmac.compare_digest(sent.encode(), token.encode()):
            raise Refused(401, "the token is missing or wrong; send it as Authorization: Bearer TOKEN")

    guarded: Any = {"dependencies": [Depends(check_token)]} if token is not None else {}
    refusals: Any = {status: {"model": ErrorAnswer} for status in (400, 401, 408, 413, 415, 422, 500, 503, 504)}
    asked: Any = {"openapi_extra": BODY, "responses": refusals, **guarded}
    most = len(server.bundle.labels)
    top = Annotated[int, Query(ge=1, description=f"how many classes to tell; there are {most}")]
    time_left = Annotated[float | None, Query(gt=0, description="seconds to wait for the answer, if fewer than usual")]

    @app.post("/predict", **asked)
    async def predict(
        request: Request, top_k: top = top_k, heat_map: bool = False, seconds: time_left = None
    ) -> Answer:
        """Classify one image or several: the bytes of a file, or files in a form."""
        return await server.work(seconds, lambda: server.predict(request, top_k, heat_map))

    @app.post("/explain", **asked)
    async def explain(
        request: Request,
        top_k: top = top_k,
        class_name: str | None = None,
        remove: Annotated[str, Query(pattern=r"^(\d+(,\d+)*)?$", max_length=MOST_REMOVED)] = "",
        seconds: time_left = None,
    ) -> Explanation:
        """Explain the answer for one image, with patches left out: remove=0,5 (numbered row by row)."""
        removed = [int(place) for place in remove.split(",") if place]
        return await server.work(seconds, lambda: server.explain(request, top_k, class_name, removed))

    @app.get("/classes", **guarded)
    async def classes() -> list[str]:
        """List the names of the classes."""
        return server.bundle.labels

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Say that the process works."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"model": ErrorAnswer}})
    async def ready() -> dict[str, str]:
        """Say whether requests will be answered."""
        if not server.ready or server.open >= server.limits.requests:
            raise Refused(503, "the server starts, stops, or has no room for another request; try again later")
        return {"status": "ready", "model": server.name}

    @app.get("/metrics", response_class=Response, **guarded)
    async def metrics() -> Response:
        """Give counts and times, in the format of Prometheus."""
        server.telemetry.open.set(server.open)
        return Response(generate_latest(server.telemetry.registry), media_type=CONTENT_TYPE_LATEST)

    for path, name in PAGES.items():
        app.add_api_route(path, make_page(PAGE / name), include_in_schema=False)
    add_errors(app, server)
    return app


def make_page(file: Path) -> Callable[[], Awaitable[FileResponse]]:
    """Make what answers with a file of the page."""

    async def send() -> FileResponse:
        return FileResponse(file, headers=SAFE)

    return send


def add_errors(app: FastAPI, server: Server) -> None:
    """Answer each error with one sentence, and count the answers."""

    @app.exception_handler(Refused)
    async def refuse(request: Request, refused: Refused) -> JSONResponse:
        headers = {"Retry-After": "1"} if refused.status == 503 else {}
        headers |= {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
        return JSONResponse({"error": refused.sentence}, refused.status, headers)

    @app.exception_handler(RequestValidationError)
    async def explain_parameter(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]} is wrong: {first['msg']}"}, 422)

    @app.exception_handler(HTTPException)
    async def explain_path(request: Request, error: HTTPException) -> JSONResponse:
        sentence = f"{request.method} {request.url.path[:200]} is unknown; /openapi.json lists what there is"
        return JSONResponse({"error": sentence}, error.status_code, error.headers)

    @app.middleware("http")
    async def count(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        start, path = time.perf_counter(), request.url.path
        try:
            response = await proceed(request)
        except Exception as error:
            refused = find_refusal(error)
            if refused is None:
                traceback.print_exception(error)  # on stderr, for who runs the server
                refused = Refused(500, "the server could not answer; its log says why")
            response = await refuse(request, refused)
        if path in COUNTED:
            server.telemetry.requests.labels(path, response.status_code).inc()
            server.telemetry.seconds.labels(path).observe(time.perf_counter() - start)
        return response


def find_refusal(error: BaseException) -> Refused | None:
    """Find the refusal in an error, or in a group of a request's tasks."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := find_refusal(one))), None)
    return error if isinstance(error, Refused) else None
