"""Builds the replies of one session from requests: their numbers, settings and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.answers import CacheQuestion, scope_of
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.engines.load_shedding import LoadLevel, LoadShedder
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.options import Options, ReplyRequest
from rejoinder.pipeline.prompt import prompt
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.reply import Reply, ReplySettings
from rejoinder.pipeline.replying.retrieval import Lookup


class ReplyBuilder:
    """Builds replies without starting them, and numbers them from 1.

    listeners: receive the audio of replies in the conversation. built: number of the last reply.
    """

    def __init__(self, history: History, load_shedder: LoadShedder, listeners: Listeners) -> None:
        self._history = history
        self._load_shedder = load_shedder
        self._listeners = listeners
        self.built = 0

    def in_conversation(
        self,
        request: ReplyRequest,
        options: Options,
        text: str = "",
        is_guess: bool = False,
        deadline: Deadline | None = None,
        marks: Mapping[str, float] | None = None,
        lookup: Lookup | None = None,
    ) -> Reply:
        """Return a reply to the history as it stands now.

        text: the user's words that it answers, which are not in the history yet. marks: the first times of
        its trace. lookup: what belongs in front of the user's words.
        """
        settings = ReplySettings.of(request, options)
        loaded = self._load_shedder.level >= LoadLevel.LENGTH
        deadline = deadline or Deadline()
        deadline.frugal = self._load_shedder.level >= LoadLevel.WINDOW
        generation = self._generation(request, options, settings, text or request.cue, loaded, lookup)
        listeners = self._listeners
        return Reply(self._next(), text, settings, generation, deadline, listeners, is_guess, marks, request)

    def question(
        self, request: ReplyRequest, options: Options, specs: Mapping[str, str], text: str
    ) -> CacheQuestion | None:
        """Return what a cache is asked for the user's words; None where no answer may come from one.

        specs: the spec of each model by role. Only the first words of a call depend on nothing before them: a
        later question may mean a place or a wish that was named earlier. A reply with tools or retrieved
        knowledge, in text only, or to a prompt of its own depends on more than a cache knows, too. So does
        one behind a guard without an identity: it may refuse today what it let pass when the answer was kept.
        """
        if options.cache is None or not specs or not text or self._history.has_user:
            return None
        settings = ReplySettings.of(request, options)
        own = request.words or request.cue or request.prompt is not None
        unknown = options.guard is not None and not options.guard.identity
        if own or unknown or settings.tools.functions or options.context or not settings.speaks:
            return None
        opening = self._history.messages(None, request.instructions)
        rules = {"guard": options.guard.identity} if options.guard else {}
        scope = scope_of({**specs, **rules}, opening, (settings.max_tokens, settings.max_seconds))
        return CacheQuestion(text, scope, specs.get("stt", ""))

    def out_of_band(self, request: ReplyRequest, options: Options) -> Reply:
        """Return a reply outside of the conversation."""
        settings = ReplySettings.of(request, options)
        return Reply(self._next(), "", settings, self._generation(request, options, settings))

    def _next(self) -> int:
        self.built += 1
        return self.built

    def _generation(
        self,
        request: ReplyRequest,
        options: Options,
        settings: ReplySettings,
        text: str = "",
        loaded: bool = False,
        lookup: Lookup | None = None,
    ) -> Generation:
        messages: Sequence[Message] = []
        refused = None
        try:
            if not request.words and (budget := options.budget) and budget.over:
                reason = f"the budget of the {budget.spent or 'day'} is spent"
                raise ProtocolError(reason, "insufficient_quota")
            messages = self._messages(request, options, text)
        except ProtocolError as error:
            refused = error
        ends_early = loaded and not settings.tools.functions
        return Generation(messages, settings.max_tokens, ends_early, refused, lookup)

    def _messages(self, request: ReplyRequest, options: Options, text: str) -> Sequence[Message]:
        if request.words:
            return []
        if request.prompt is None:
            return self._history.messages(text or None, request.instructions)
        return prompt(request.prompt, request.instructions or options.instructions)
