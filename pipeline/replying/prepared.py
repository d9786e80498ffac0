"""Makes the answers to first words of callers in advance, for a cache."""

from __future__ import annotations

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.events import Event
from rejoinder.pipeline.history import History
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.replying.reply_builder import ReplyBuilder
from rejoinder.pipeline.replying.running import attempt
from rejoinder.pipeline.replying.stages import CONTROL_PLACES, collect
from rejoinder.pipeline.replying.text.clauses import clauses_of


def first_question(models: Models, options: Options, words: str) -> CacheQuestion | None:
    """Return what a session asks its cache where a caller begins with these words, once greeted.

    None where no answer of such a session is cached. options: with the cache.
    """
    return _builder(models, options).question(ReplyRequest(), options, models.specs, words)


async def prepare(models: Models, options: Options, words: str, answer: str = "") -> CachedAnswer | None:
    """Return what a caller hears who begins with these words; None for an answer that may not be cached.

    answer: its words, "" for those of the language model. It takes as long as the models do: nothing is
    played. Raises PipelineError if a model fails. Cancelling discards the answer.
    """
    reply = _builder(models, options).in_conversation(ReplyRequest(words=answer), options, words)
    reply.commit()
    error = await attempt(reply, models, Channel[Event](2 * CONTROL_PLACES, "events"), last=collect)
    if error is not None:
        raise error
    reply.outcome.finish()
    return reply.recording.answer() if reply.outcome.status == "completed" and reply.may_be_kept else None


def _builder(models: Models, options: Options) -> ReplyBuilder:
    history = History.of(options, models.llm)
    if options.greeting.strip():
        history.add("assistant", " ".join(clauses_of(options.greeting)))
    return ReplyBuilder(history, models.load_shedder, Listeners())
