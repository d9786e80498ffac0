"""The agent's side of a conversation: it decides which reply comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.search import Search, Searches
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.context.summaries import Summaries
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.events import Event
from rejoinder.pipeline.history import History
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.prompt import Key
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.current_reply import CurrentReply
from rejoinder.pipeline.replying.disconnection import Disconnection
from rejoinder.pipeline.replying.next.false_interruption import GO_ON_CUE, FalseInterruption
from rejoinder.pipeline.replying.next.position import ReplyPosition, position_of
from rejoinder.pipeline.replying.out_of_band import OutOfBandReplies
from rejoinder.pipeline.replying.prompt_warmer import PromptWarmer
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.reply_builder import ReplyBuilder
from rejoinder.pipeline.replying.reply_records import ReplyRecords
from rejoinder.pipeline.replying.retrieval import Retrieval
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor


class Replies:
    """The replies of one session. The methods do not wait.

    A *guess* is a reply that starts before the user's turn is over; it is not played until it is committed.

    Another reply is *requested* if the client's request waits for the end of the user's turn. It is *owed* if
    the user's words wait for the end of a reply that may not be interrupted.

    current: the reply that has the floor, or may get it.
    echo: receives the agent's audio to remove it from the microphone's; None if echo removal is off.
    listeners: receive the agent's audio with the times at which it plays.
    cancelled: the tasks of cancelled replies, until they have ended.
    emit: takes the events of replies, except text and audio, which wait for room in ``out``.
    """

    def __init__(
        self,
        models: Models,
        options: Options,
        history: History,
        floor: Endpointer,
        out: Channel[Event],
        emit: Callable[[Event], None],
    ) -> None:
        self.echo = Echo() if options.echo_gate else None
        self.listeners = Listeners(*filter(None, [self.echo]))
        self.cancelled = CancelledTasks()
        self._options = options
        self._history = history
        self._floor = floor
        records = self._records = ReplyRecords(history, floor.agent)
        self.current = CurrentReply(models, records, floor, out, emit, self.cancelled, self._ended)
        self._disconnection = Disconnection(self.current, records, floor, self.listeners)
        self._out_of_band = OutOfBandReplies(models, out, emit, self.cancelled)
        self._builder = ReplyBuilder(history, models.load_shedder, self.listeners)
        self._warmer = PromptWarmer(models.llm, history, models.load_shedder)
        self._retrieval = Retrieval(self.cancelled, self._read_ahead)
        self._searches = Searches(self.cancelled)
        self._summaries = Summaries(models.llm, history, self.cancelled, lambda: self.warm(""))
        self._false_interruption = FalseInterruption(history)
        self._pause_marks: dict[str, float] = {}
        self._requested: ReplyRequest | None = None
        self._owed = ""
        self._owed_failure: ModelError | None = None
        self._owed_marks: dict[str, float] = {}

    @property
    def idle(self) -> bool:
        """Whether there is no reply, requested and owed ones included."""
        return self.current.reply is None and not self.is_next_wanted

    @property
    def due(self) -> bool:
        """Whether a reply is due that waits for neither the user nor the client."""
        match self._floor.floor:
            case Floor.NOBODY | Floor.AGENT:
                return not self.current.held and (self.current.committed or self.is_next_wanted)
            case Floor.USER:  # where the client ends the turns, the user always has the floor
                return self._floor.manual and self.current.committed and not self.current.held
        return False

    @property
    def is_next_wanted(self) -> bool:
        """Whether a reply is requested or owed that has not begun."""
        return bool(self._owed or self._owed_failure) or self._requested is not None

    @property
    def _yields(self) -> bool:
        """Whether speech stops the current reply, or would stop one."""
        reply = self.current.reply
        return self._options.interrupt_response and (reply is None or reply.settings.interruptible)

    @property
    def may_begin(self) -> bool:
        """Whether another reply cuts none off: there is none, or all of its audio is sent."""
        reply = self.current.reply
        return not self.is_next_wanted and (reply is None or (reply.committed and reply.outcome.ended))

    @property
    def may_fill(self) -> bool:
        """Whether the current reply may speak a filler, and nothing keeps it from being heard."""
        reply, floor = self.current.reply, self._floor.floor
        return reply is not None and floor is Floor.AGENT and reply.may_fill

    def position(self, now: float) -> ReplyPosition | None:
        """Return how far the newest reply was heard at loop time ``now``; None before the first one.

        After ``close``, the reply that it cancelled is not over: another process may go on with it.
        """
        current = self.current.reply if self.current.committed else None
        reply = current or self._records.last
        if reply is None:
            return None
        is_over = current is None and reply.id != self.current.closed
        return position_of(reply, now, is_over and self._history.is_cut(reply.id))

    def fill(self, words: str) -> None:
        """Speak a filler in the current reply, if ``may_fill``."""
        if self.current.reply and self.may_fill:
            self.current.reply.fill(words)

    def end_filler(self) -> None:
        """End a filler that is a reply of its own."""
        if self.current.reply:
            self.current.reply.end_filler()

    def configure(self, options: Options) -> None:
        """Replace the options of the session, from the next reply on."""
        is_prompt_changed = (options.instructions, options.examples, options.tools) != (
            self._options.instructions,
            self._options.examples,
            self._options.tools,
        )
        self._options = options
        if is_prompt_changed:
            self._warmer.cancel(self.cancelled)
            self.warm("")

    def hand_over(self, models: Models | None) -> int:
        """Drop a guess, and use other models from the next reply on; see ``Session.hand_over``."""
        self.drop_guess()
        self._false_interruption.forget()
        if models is not None:
            self.current.use(models)
            self._out_of_band.use(models)
            self._warmer.use(models.llm)
            self._summaries.use(models.llm)
        return self._builder.built

    # --- the user's turn --------------------------------------------------------------------------------

    def mark_pause(self, speech_ended: float, now: float) -> None:
        """Record for the trace of the next reply that the user paused: a new pause replaces the last."""
        self._pause_marks = {"speech_ended": speech_ended, "pause_seen": now}

    def mark_transcribed(self, now: float) -> None:
        """Record for the trace of the next reply that the transcript of the turn is final."""
        self._pause_marks["transcribed"] = now

    def warm(self, text: str) -> None:
        """Send the prompt to the language model's cache before the user's turn is over.

        text: the words of the turn so far, "" before the first turn. Where something is retrieved for them,
        the prompt is sent once that is there.
        """
        budget = self._options.budget
        if self._options.create_response and not (budget and budget.over):
            self._search(ReplyRequest(), text)
            lookup = self._retrieval.look_up(text, self._options.context)
            if lookup is None or lookup.task.done():
                self._read_ahead(text)

    def _read_ahead(self, text: str) -> None:
        self._warmer.warm(text, self._options.tools, self._retrieval.known(text))

    def guess(self, text: str) -> None:
        """Start a reply to a turn that is probably over. It waits for its commit."""
        wanted = self._options.speculate and self._options.create_response and not self.current.committed
        goes_on = self._requested is None and self._false_interruption.request(text) is not None
        wanted = wanted and not goes_on
        if wanted and not self.current.is_guess_for(text):
            self.drop_guess()
            if self.current.speculation.may_start(self._options.max_guesses):
                self._start(ReplyRequest(), text, is_guess=True)

    def drop_guess(self) -> None:
        """Cancel the current reply if it is not committed."""
        if not self.current.committed:
            self.current.cancel()

    def take_text(self) -> None:
        """Drop a guess, whose prompt lacks new words, and what a stopped reply has left to say."""
        self.drop_guess()
        self._false_interruption.forget()

    def end_turn(self, text: str, key: Key | None = None) -> None:
        """Answer the user's turn, or record it if replies are off.

        A current reply that may not be interrupted finishes first. A reply that the turn stopped goes on if
        the words are only a backchannel. key: key of the turn's history entry.
        """
        goes_on = self._go_on(text)
        requested = self._requested is not None
        if self.current.committed and not requested and not self._yields:
            self._history.add_user(text, key)
            owed = f"{self._owed} {text}".lstrip() if self._options.create_response else ""
            self._owed, self._owed_marks = owed, self._pause_marks
        elif self._options.create_response or requested:
            self._answer(text, key, goes_on)
        else:
            self.drop_guess()  # replies may have been turned off since it began
            self._history.add_user(text, key)
            self._floor.agent.finished()

    def end_empty_turn(self, error: ModelError | None = None, dropped: bool = False) -> None:
        """Start the requested or owed reply after a turn without words, or go on with the one it stopped.

        dropped: whether the client dropped the turn. error: why the words are not known. Then a reply that
        fails with it takes the place of the answer. It waits for the end of a reply that may not be
        interrupted, and leaves room for an answer that is owed.
        """
        goes_on = not dropped and not error and self._go_on("")
        self._false_interruption.forget()
        wanted = self._options.create_response or self._requested is not None
        if error and wanted and not self._owed and (self._requested is None or self._requested.asks):
            self._owed_failure = error
        if self._requested is not None:
            self._answer("", goes_on=goes_on)
        else:
            self._ended()

    def _go_on(self, text: str) -> bool:
        """Request the rest of the reply that the user's turn stopped, if its words want no answer."""
        if self._options.create_response and self._requested is None:
            self._requested = self._false_interruption.take(text)
            return self._requested is not None
        self._false_interruption.forget()
        return False

    def answer_owed(self) -> None:
        """Answer the words said during the last reply, unless the user is speaking again, or all is said."""
        if (budget := self._options.budget) and budget.parted:
            self._owed, self._owed_failure = "", None
        if self.current.committed or self._floor.floor is Floor.USER:
            return
        if self._owed or self._owed_failure:
            self.respond()

    def _ended(self) -> None:
        self.answer_owed()
        self.rest()

    def rest(self) -> None:
        """Use the time in which neither side has the floor for a summary of a long conversation."""
        if self._floor.idle and self.idle:
            self._summaries.begin(self._options.compress)

    def yield_to_user(self) -> None:
        """Cancel the reply for the user's speech, if replies may be interrupted."""
        self._summaries.cancel()
        self._pause_marks = {}
        self.current.speculation.begin_turn()
        self._false_interruption.forget()
        if self._yields:
            stopped, last = self.current.cancel(interrupted=True), self._options.last_words
            is_last = stopped is not None and last != "" and stopped.settings.words == last
            self._false_interruption.stopped(None if is_last else stopped)  # the last words are said anew

    # --- what the client and the session ask for --------------------------------------------------------

    def respond(self, request: ReplyRequest | None = None) -> None:
        """Start the requested reply. If the user is in a turn, the reply waits for the end of the turn."""
        request = request or ReplyRequest()
        if not request.remembered:
            self._out_of_band.start(self._builder.out_of_band(request, self._options), request.tag)
            return
        talking = self._floor.floor is Floor.USER and not self._floor.manual
        ending = self._floor.floor is Floor.PAUSE
        if (talking and self._options.interrupt_response) or ending:
            self._requested = request  # it replaces an earlier one
            return
        self._false_interruption.forget()
        self.current.cancel(superseded=True)
        self._commit(self._start(request), request)

    def prompt(self, cue: str) -> None:
        """Reply to a cue that replaces the user's words in the prompt; the history does not record it."""
        self._commit(self._start(ReplyRequest(cue=cue)))

    def interrupt(self, out_of_band: int | None = None) -> None:
        """Stop the current or requested reply, or the out-of-band reply with the given number."""
        if out_of_band is not None:
            self._out_of_band.cancel(out_of_band)
            return
        self._requested, self._owed, self._owed_failure = None, "", None
        self._false_interruption.forget()
        self.current.cancel()
        self._floor.agent.finished()

    def truncate(self, id: int, seconds: float) -> str | None:
        """Settle reply ``id`` at ``seconds`` played; stop it if it runs. Return the heard text or None."""
        heard = self.current.truncate(id, seconds)
        self.listeners.truncate(id, seconds)
        self.answer_owed()
        return heard

    def hold(self, since: float) -> tuple[int, float] | None:
        """Stop play-out until ``release``: the client has been disconnected since time ``since``.

        Returns the number of the last reply that played and the seconds of it played by then, or None.
        """
        self._out_of_band.pause()
        return self._disconnection.begin(since)

    def release(self, unheard: Mapping[int, float]) -> None:
        """Resume play-out; the client plays the last seconds of some replies again, one after the other.

        unheard: these seconds by the number of the reply.
        """
        self._out_of_band.resume()
        self._disconnection.end(unheard, self.is_next_wanted)

    def close(self) -> None:
        """Cancel all replies; ``cancelled`` holds the tasks that have not ended."""
        self.current.close()
        self._out_of_band.close()
        self._warmer.cancel(self.cancelled)
        self._retrieval.close()
        self._searches.close()
        self._summaries.cancel()
        self.cancelled.cancel_again()

    # --- which reply comes next -------------------------------------------------------------------------

    def _answer(self, text: str, key: Key | None = None, goes_on: bool = False) -> None:
        request, self._requested = self._requested or ReplyRequest(), None
        guess = self.current.reply
        if guess and text and request == ReplyRequest(tag=request.tag) and self.current.is_guess_for(text):
            self._commit(guess, request, key)
        else:
            self.current.cancel(superseded=True)
            reply = self._start(request, text)
            reply.trace.count({"went_on": 1} if goes_on else {})
            self._commit(reply, request, key)

    def _start(self, request: ReplyRequest, text: str = "", is_guess: bool = False) -> Reply:
        # The prompt is built before the task starts: a commit right after this adds the text to the history.
        self._summaries.cancel()
        request = self._affordable(request)
        if request.asks and not text and not self._owed and self._owed_failure:
            request = replace(request, failure=self._owed_failure)
        asks = request.asks
        owed = self._owed if asks and not text else ""
        marks = self._owed_marks if owed else self._pause_marks if text else {}
        deadline = self._warmer.take_deadline()
        words = text or self._history.last_user_words
        needs = asks or (request.cue == GO_ON_CUE and not request.words)
        lookup = self._retrieval.look_up(words, self._options.context) if needs else None
        reply = self._builder.in_conversation(request, self._options, text, is_guess, deadline, marks, lookup)
        if owed:
            reply.trace.said = owed
            reply.mark("floor_free")
        reply.search = self._search(request, text)
        self.current.start(reply, self._warmer.task)
        return reply

    def _affordable(self, request: ReplyRequest) -> ReplyRequest:
        """Return the request, or one for the last words of a call whose budget is spent."""
        budget = self._options.budget
        if request.words or not budget or not budget.over or not budget.words:
            return request
        return replace(request, words=budget.words, interruptible=False)

    def _search(self, request: ReplyRequest, text: str) -> Search | None:
        question = self._builder.question(request, self._options, self.current.specs, text)
        return self._searches.look_up(question, self._options.cache)

    def _commit(self, reply: Reply, request: ReplyRequest | None = None, key: Key | None = None) -> None:
        self._owed, self._owed_failure = "", None
        if (budget := self._options.budget) and budget.over and reply.settings.words == budget.words:
            budget.parted = True
        self.current.commit(reply, request.tag if request else 0, key)
