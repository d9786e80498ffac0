"""What errors of Ray mean, and errors that come from another process."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from rejoinder.models.ray import cluster
from rejoinder.models.ray.cluster import answer, ask
from rejoinder.pipeline.errors import ModelError, Overloaded, PipelineError


@pytest.mark.parametrize(
    "error",
    [
        ModelError("piper", "the voice: it broke", "model_timeout"),
        Overloaded("1024 jobs are waiting already", "whisper"),
        Overloaded("all lines are busy"),
        PipelineError("the reason"),
    ],
)
def test_errors_come_from_another_process_as_they_are(error: PipelineError) -> None:
    if isinstance(error, ModelError):
        error.role = "voice"
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error) and str(other) == str(error) and vars(other) == vars(error)


def test_an_answer_that_does_not_come_has_a_limit() -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await answer(asyncio.get_running_loop().create_future(), 0.02)

    asyncio.run(wait())


class Response:
    """A request that is answered when ``result`` is. ended: how often it was cancelled."""

    def __init__(self) -> None:
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = 0

    def __await__(self):  # type: ignore[no-untyped-def]
        return self.result.__await__()

    def cancel(self) -> None:
        self.ended += 1


class Handle:
    """A handle of one request."""

    def __init__(self) -> None:
        self.response = Response()

    def remote(self) -> Response:
        return self.response


def test_who_is_cancelled_ends_the_work_and_a_request_given_up_is_a_lost_replica() -> None:
    async def use() -> None:
        handle = Handle()
        asking = asyncio.ensure_future(ask(handle, 5.0))
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert handle.response.ended == 1

        handle = Handle()
        asyncio.get_running_loop().call_later(0.01, handle.response.result.cancel)
        with pytest.raises(cluster.ReplicaLost, match="gave the request up"):
            await ask(handle, 5.0)

    asyncio.run(use())


def test_what_errors_of_ray_mean() -> None:
    exceptions = pytest.importorskip("ray.exceptions", reason="Ray is not installed: make test-scale has it")
    served = pytest.importorskip("ray.serve.exceptions")
    translated = cluster.translated
    assert isinstance(translated(exceptions.NodeDiedError("gone")), cluster.ReplicaLost)
    assert isinstance(translated(exceptions.ActorDiedError()), cluster.ReplicaLost)
    assert isinstance(translated(exceptions.ObjectLostError("00" * 28, None, "")), cluster.ReplicaLost)
    assert isinstance(translated(served.BackPressureError(3, 2)), Overloaded)
    broken = translated(RuntimeError("first\nlast"))
    assert isinstance(broken, ModelError) and str(broken) == "ray: a replica failed: last"
    task = exceptions.RayTaskError("speak", "Traceback", ModelError("piper", "it broke"))
    assert str(translated(task)) == "piper: it broke"
