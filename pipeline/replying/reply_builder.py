"""Builds the replies of one session from requests: their numbers, settings and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.answers import Question, scope_of
from rejoinder.pipeline.context.retrieval import Lookup
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.engines.load_shedding import LoadLevel, LoadShedder
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.options import Options, ReplyRequest
from rejoinder.pipeline.prompt import prompt
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.reply_settings import ReplySettings, settings_for


class ReplyBuilder:
    """Builds replies without starting them, and numbers them from 1.

    listeners: receive the audio of replies in the conversation.
    """

    def __init__(self, history: History, load_shedder: LoadShedder, listeners: Listeners) -> None:
        self._history = history
        self._load_shedder = load_shedder
        self._listeners = listeners
        self._built = 0

    @property
    def built(self) -> int:
        """The number of the last reply that was built, 0 before the first."""
        return self._built

    def in_conversation(
        self,
        request: ReplyRequest,
        options: Options,
        text: str = "",
        cue: str = "",
        is_guess: bool = False,
        deadline: Deadline | None = None,
        marks: Mapping[str, float] | None = None,
        lookup: Lookup | None = None,
        waits: bool = False,
    ) -> Reply:
        """Return a reply to the history as it stands now.

        text: the user's words that it answers, which are not in the history yet. cue: stands for them in the
        prompt, and never enters the history. marks: the first times of its trace. lookup: retrieves
        knowledge. waits: whether its prompt comes later, with ``prompted``.
        """
        settings = settings_for(request, options)
        loaded = self._load_shedder.level >= LoadLevel.LENGTH
        if waits:
            generation = Generation((), settings.max_tokens, waits=True)
        else:
            generation = self._generation(request, options, settings, text or cue, loaded, lookup)
        return Reply(
            self._next(), text, settings, generation, deadline, self._listeners, is_guess, marks, request
        )

    def prompted(self, reply: Reply, options: Options, lookup: Lookup | None, cue: str) -> None:
        """Give a reply that waits for its prompt the history as it stands now, and the cue behind it."""
        request = ReplyRequest()
        reply.settings = settings_for(request, options)
        reply.generation.take_prompt(*self._asked(request, options, cue), lookup)

    def question(
        self, request: ReplyRequest, options: Options, specs: Mapping[str, str], text: str
    ) -> Question | None:
        """Return what a cache is asked for the user's words; None where no answer may come from one.

        specs: the spec of each model by role. A reply with tools or retrieved knowledge, in text only, or to
        a prompt of its own depends on more than a cache knows. A guard may refuse today what it let pass
        when the answer was kept.
        """
        settings = settings_for(request, options)
        own = request.words or request.cue or request.prompt is not None or request.audio
        more = settings.tools.functions or options.context or options.guard or not settings.speaks
        if options.cache is None or not text or own or more:
            return None
        if (opening := self._history.opening(request.instructions)) is None:
            return None
        scope = scope_of(specs, opening, (settings.max_tokens, settings.max_seconds))
        return Question(text, scope, specs.get("stt", ""), not self._history.asked)

    def out_of_band(self, request: ReplyRequest, options: Options) -> Reply:
        """Return a reply outside of the conversation."""
        settings = settings_for(request, options)
        return Reply(self._next(), "", settings, self._generation(request, options, settings))

    def _next(self) -> int:
        self._built += 1
        return self._built

    def _generation(
        self,
        request: ReplyRequest,
        options: Options,
        settings: ReplySettings,
        text: str = "",
        loaded: bool = False,
        lookup: Lookup | None = None,
    ) -> Generation:
        messages, refused = self._asked(request, options, text)
        ends_early = loaded and not settings.tools.functions
        return Generation(messages, settings.max_tokens, ends_early, refused, lookup)

    def _asked(
        self, request: ReplyRequest, options: Options, text: str
    ) -> tuple[Sequence[Message], ProtocolError | None]:
        try:
            return self._messages(request, options, text), None
        except ProtocolError as error:
            return [], error

    def _messages(self, request: ReplyRequest, options: Options, text: str) -> Sequence[Message]:
        if request.words:
            return []
        if request.prompt is None:
            return self._history.messages(text or None, request.instructions)
        return prompt(request.prompt, request.instructions or options.instructions)
