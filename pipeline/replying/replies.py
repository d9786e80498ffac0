"""The agent's side of a conversation: it decides which reply comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.search import Search, Searches
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.context.retrieval import Lookup, Retrieval
from rejoinder.pipeline.context.summaries import Summaries
from rejoinder.pipeline.context.tokens import TokenBudget
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.events import Event
from rejoinder.pipeline.guarding.refusal_ahead import RefusalAhead
from rejoinder.pipeline.history import History
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.prompt import Key
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.current_reply import CurrentReply
from rejoinder.pipeline.replying.disconnection import Disconnection
from rejoinder.pipeline.replying.next.false_interruption import FalseInterruption
from rejoinder.pipeline.replying.next.next_reply import NextReply
from rejoinder.pipeline.replying.next.position import ReplyPosition, position_of
from rejoinder.pipeline.replying.out_of_band import OutOfBandReplies
from rejoinder.pipeline.replying.prompt_warmer import PromptWarmer
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.reply_builder import ReplyBuilder
from rejoinder.pipeline.replying.reply_records import ReplyRecords
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor


class Replies:
    """The replies of one session. The methods do not wait.

    A *guess* is a reply that starts before the user's turn is over; it is not played until it is committed.

    echo: removes the agent's audio from the microphone's; None if echo removal is off.
    listeners: receive the agent's audio with the times at which it plays.
    cancelled: the tasks of cancelled replies, until they have ended.
    refusals: synthesises the sentence of the guard ahead.
    emit: takes the events of replies, except text and audio, which wait for room in ``out``.
    """

    def __init__(
        self,
        models: Models,
        budget: TokenBudget,
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
        records = ReplyRecords(history, floor.agent)
        self._current = CurrentReply(models, records, floor, out, emit, self.cancelled, self._ended)
        self._disconnection = Disconnection(self._current, records, floor, self.listeners)
        self._out_of_band = OutOfBandReplies(models, out, emit, self.cancelled)
        self._builder = ReplyBuilder(history, models.load_shedder, self.listeners)
        self._warmer = PromptWarmer(models.llm, history)
        self._retrieval = Retrieval(self.cancelled, budget.fit_knowledge, self._found)
        self._searches = Searches(self.cancelled)
        self._summaries = Summaries(models.llm, history, self.cancelled)
        self.refusals = RefusalAhead(options.guard, models.tts, self.cancelled)
        self._pause_marks: dict[str, float] = {}
        self._next = NextReply()
        self._unheard: ModelError | None = None
        self._false_interruption = FalseInterruption(history)

    @property
    def current(self) -> Reply | None:
        """The current reply, until it has played; None between replies."""
        return self._current.reply

    @property
    def idle(self) -> bool:
        """Whether there is no reply, requested and owed ones included."""
        return self.current is None and not self._next.is_wanted

    @property
    def held(self) -> bool:
        """Whether play-out is stopped because the client is disconnected."""
        return self._current.held

    @property
    def speculation(self) -> Speculation:
        """Counts of the guesses."""
        return self._current.speculation

    def position(self, now: float) -> ReplyPosition | None:
        """Return how far the newest reply was heard at loop time ``now``; None before the first one.

        After ``close``, the reply that it cancelled is not over: another process may go on with it.
        """
        current = self.current if self._current.committed else None
        reply = current or self._current.last
        if reply is None:
            return None
        is_over = current is None and reply.id != self._current.closed
        return position_of(reply, now, is_over and self._history.is_cut(reply.id))

    def configure(self, options: Options) -> None:
        """Replace the options of the session, from the next reply on."""
        self._options = options
        self.refusals.use(options.guard)

    def hand_over(self, models: Models | None) -> int:
        """Drop a guess, and use other models from the next reply on; see ``Session.hand_over``."""
        self.drop_guess()
        self._false_interruption.forget()
        if models is not None:
            self._current.use(models)
            self._out_of_band.use(models)
            self._warmer.use(models.llm)
            self._summaries.use(models.llm)
            self.refusals.use(None, models.tts)  # the guard comes with the options
        return self._builder.built

    # --- the user's turn --------------------------------------------------------------------------------

    def mark_pause(self, speech_ended: float, now: float) -> None:
        """Record for the trace of the next reply that the user paused: a new pause replaces the last."""
        self._pause_marks = {"speech_ended": speech_ended, "pause_seen": now}

    def mark_transcribed(self, now: float) -> None:
        """Record for the trace of the next reply that the transcript of the turn is final."""
        self._pause_marks["transcribed"] = now

    def warm(self, text: str) -> None:
        """Send the prompt to the language model's cache while the user still speaks."""
        if self._options.create_response:
            self._warmer.warm(text, self._retrieval.text)

    def look_up(self, text: str) -> None:
        """Retrieve knowledge for the user's words so far; a lookup of other words is cancelled."""
        if self._options.create_response:
            self._retrieval.look_up(text, self._options.context)
            self._search(ReplyRequest(), text)

    def guess(self, text: str) -> None:
        """Start a reply to a turn that is probably over. It waits for its commit."""
        wanted = self._options.speculate and self._options.create_response and not self._current.committed
        wanted = wanted and self._false_interruption.request(text) is None
        if wanted and not self._current.is_guess_for(text):
            self.drop_guess()
            if self.speculation.may_start(self._options.max_guesses):
                self._start(ReplyRequest(), text, is_guess=True)

    def drop_guess(self) -> None:
        """Cancel the current reply if it is not committed."""
        if not self._current.committed:
            self._current.cancel()

    def end_turn(self, text: str, key: Key | None = None) -> None:
        """Answer the user's turn, or record it if replies are off.

        A current reply that may not be interrupted finishes first. A reply that the turn stopped goes on if
        the words are only a backchannel. key: key of the turn's history entry.
        """
        self._unheard = None
        goes_on = self._go_on(text)
        if self._current.committed and not self._next.requested and not self._options.interrupt_response:
            self._history.add_user(text, key)
            self._next.owe(self._options.create_response)
        elif self._options.create_response or self._next.requested:
            self._answer(text, key, goes_on)
        else:
            self._history.add_user(text, key)
            self._floor.agent.finished()

    def miss(self, error: ModelError) -> None:
        """Take the error for which the words of the user's turn are not known.

        If no words follow, a reply that fails answers the turn: every wire reports such a one.
        """
        self._unheard = error

    def end_empty_turn(self, dropped: bool = False) -> None:
        """Start the requested or owed reply after a turn without words, or go on with the one it stopped.

        dropped: whether the client dropped the turn.
        """
        unheard, self._unheard = None if dropped else self._unheard, None
        goes_on = not dropped and not unheard and self._go_on("")
        self._false_interruption.forget()
        if unheard and self._options.create_response:
            self._next.request(replace(self._next.take_request(), failure=unheard))
        if self._next.requested:
            self._answer("", goes_on=goes_on)
        else:
            self._ended()

    def _go_on(self, text: str) -> bool:
        """Request the rest of the reply that the user's turn stopped, if its words want no answer."""
        if self._options.create_response and not self._next.requested:
            if request := self._false_interruption.take(text):
                self._next.request(request)
                return True
        self._false_interruption.forget()
        return False

    def answer_owed(self) -> None:
        """Answer the words said during the last reply, unless the user is speaking again."""
        if self._next.owed and not self._current.committed and self._floor.floor is not Floor.USER:
            self.respond()

    def _ended(self) -> None:
        self.answer_owed()
        self.rest()

    def rest(self) -> None:
        """Use the time in which neither side has the floor for a summary of a long conversation."""
        if self._floor.floor is Floor.NOBODY and self.idle:
            self._summaries.begin(self._options.compress)

    def yield_to_user(self) -> None:
        """Cancel the reply for the user's speech, if replies may be interrupted."""
        self._summaries.cancel()
        self._pause_marks = {}
        self.speculation.begin_turn()
        self._false_interruption.forget()
        if self._options.interrupt_response:
            self._false_interruption.stopped(self._current.cancel(interrupted=True))

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
            self._next.request(request)
            return
        self._current.cancel(superseded=True)
        self._commit(self._start(request, cue=request.cue), request)

    def begin(self) -> int | None:
        """Begin a reply that gets its prompt with ``proceed``; return its number.

        Until then it can speak fillers. None where a side speaks or may, or where replies are not spoken.
        """
        current, floor = self.current, self._floor.floor
        free = floor is Floor.NOBODY or (floor is Floor.AGENT and current and current.outcome.ended)
        if not free or self._next.is_wanted or not self._options.speaks:
            return None
        self._current.cancel(superseded=True)
        reply = self._start(ReplyRequest(), waits=True)
        self._commit(reply)
        return reply.id

    def proceed(self, id: int, cue: str = "") -> bool:
        """Give reply ``id`` the history as it stands as its prompt; return whether it still waits for one.

        cue: stands for the user's words in the prompt, "" for none.
        """
        reply = self.current
        if reply is None or reply.id != id or not reply.generation.waits:
            return False
        self._builder.prompted(reply, self._options, self._lookup(""), cue)
        return True

    def fill(self, words: str, skip: float = 0.0) -> bool:
        """Speak a filler until the current reply has audio; return whether that is possible now.

        skip: seconds of the filler's audio to leave out.
        """
        reply, floor = self.current, self._floor.floor
        return reply is not None and floor is Floor.AGENT and reply.fill(words, skip)

    def prompt(self, cue: str) -> None:
        """Reply to a cue that replaces the user's words in the prompt; the history does not record it."""
        self._commit(self._start(ReplyRequest(), cue=cue))

    def pause(self) -> None:
        """Pause the reply until it is known whether the sound over it is an interruption."""
        self._current.pause()

    def resume(self) -> None:
        """Resume the reply at the sample where it paused: the sound is no interruption so far."""
        self._current.resume()

    def end_overlap(self) -> None:
        """Resume the reply if it is paused, and count the sound: it is over and was no interruption."""
        self._current.resume()
        self._current.count_false_interruption()
        self.rest()

    def interrupt(self, out_of_band: int | None = None) -> None:
        """Stop the current or requested reply, or the out-of-band reply with the given number."""
        if out_of_band is not None:
            self._out_of_band.cancel(out_of_band)
            return
        self._next.forget()
        self._false_interruption.forget()
        self._current.cancel()
        self._floor.agent.finished()

    def truncate(self, id: int, seconds: float) -> str | None:
        """Settle reply ``id`` at ``seconds`` played; stop it if it runs. Return the heard text or None."""
        heard = self._current.truncate(id, seconds)
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
        self._disconnection.end(unheard, self._next.is_wanted)

    def close(self) -> None:
        """Cancel all replies; ``cancelled`` holds the tasks that have not ended."""
        self._current.close()
        self._out_of_band.close()
        self._warmer.cancel(self.cancelled)
        self._retrieval.close()
        self._searches.close()
        self._summaries.cancel()
        self.refusals.close()
        self.cancelled.cancel_again()

    # --- which reply comes next -------------------------------------------------------------------------

    def _answer(self, text: str, key: Key | None = None, goes_on: bool = False) -> None:
        request = self._next.take_request()
        guess = self.current
        if guess and text and request == ReplyRequest(tag=request.tag) and self._current.is_guess_for(text):
            self._commit(guess, request, key)
        else:
            self._current.cancel(superseded=True)
            reply = self._start(request, text, request.cue)
            reply.trace.count({"went_on": 1} if goes_on else {})
            self._commit(reply, request, key)

    def _start(
        self,
        request: ReplyRequest,
        text: str = "",
        cue: str = "",
        is_guess: bool = False,
        waits: bool = False,
    ) -> Reply:
        # The prompt is built before the task starts: a commit right after this adds the text to the history.
        self._summaries.cancel()
        deadline, marks = self._warmer.take_deadline(), self._pause_marks if text else {}
        given = cue or request.words or request.prompt is not None
        lookup = None if given or waits else self._lookup(text)
        reply = self._builder.in_conversation(
            request, self._options, text, cue, is_guess, deadline, marks, lookup, waits
        )
        reply.search = self._search(request, text)
        self._current.start(reply, self._warmer.task)
        return reply

    def _search(self, request: ReplyRequest, text: str) -> Search | None:
        question = self._builder.question(request, self._options, self._current.specs, text)
        return self._searches.look_up(question, self._options.cache)

    def _found(self, text: str) -> None:
        if self.current is None:  # a reply has its prompt already
            self.warm(text)

    def _lookup(self, text: str) -> Lookup | None:
        """Return the lookup of these words, or of the user's last ones, which a tool's result belongs to."""
        return self._retrieval.look_up(text or self._history.asked, self._options.context)

    def _commit(self, reply: Reply, request: ReplyRequest | None = None, key: Key | None = None) -> None:
        self._next.owe(False)
        self._current.commit(reply, request.tag if request else 0, key)
