"""The agent's side of a conversation: one reply at a time, from a guess to what was heard of it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.engines.load_shedding import LoadLevel
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.events import Event, ReplyCalled, ReplyStarted, TurnTraced
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.listening.agreement import normalise
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.prompt import Key, prompt
from rejoinder.pipeline.replying.out_of_band import OutOfBandReplies
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.replying.stages import attempt, over
from rejoinder.pipeline.replying.turn import Turn
from rejoinder.pipeline.turns.endpointer import Endpointer, Floor

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.3
"""A reply of which less was heard leaves no trace: the user had not finished, and both parts are one turn."""


class Replies:
    """The replies of one session, and the only place where one is started, paused and cancelled.

    What a reply starts ends with its task, and that is in ``turn`` or ``cancelled`` until it is gone. No verb
    waits: the next prompt is built from a history that is settled.

    turn: the reply that runs or sounds out, a guess until it is committed; None between replies.
    echo: where what they say may be heard too, None where nothing is done about that.
    cancelled: the tasks that were cancelled and are not gone yet.
    speculation: what became of the guesses.
    held: whether nothing may be heard, because the client is gone and may come back.
    options: as the client has them now. marks: of the user's pause, where the trace of its answer begins.
    emit: takes what happens to them, but for their text and audio, which wait for room in ``out``.
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
        self.options = options
        self.turn: Turn | None = None
        self.echo = Echo() if options.echo_gate else None
        self.cancelled: set[asyncio.Task[None]] = set()
        self.speculation = Speculation()
        self.held = False
        self.marks: dict[str, float] = {}
        self._models = models
        self._history = history
        self._floor = floor
        self._out = out
        self._emit = emit
        self._turns = 0
        self._asides = OutOfBandReplies(models, out, emit, self._see_off)
        self._settled: deque[Turn] = deque(maxlen=8)
        self._warming: asyncio.Task[None] | None = None
        self._reading = Deadline(PARTIAL_SECONDS)
        self._asked: ReplyRequest | None = None
        self._owed = False

    # --- which reply comes next -------------------------------------------------------------------------

    def warm(self, text: str) -> None:
        """Let the language model read the prompt while its last words are still being said."""
        if self.options.create_response and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._prefill(text, self._reading), name="warm")

    def guess(self, text: str) -> None:
        """Start the answer to a turn that is probably over; it waits for its commit."""
        wanted = self.options.speculate and self.options.create_response and not self._replying
        if wanted and not self._guessed(text):
            self.drop_guess()
            if self.speculation.may_start(self.options.max_guesses):
                self._start(text).guess = True

    def drop_guess(self) -> None:
        """Cancel a reply that is not committed."""
        if self.turn and not self.turn.committed:
            self._cancel()

    def end_turn(self, text: str, key: Key | None = None) -> None:
        """Answer the user's turn, now or after the reply that may not be interrupted.

        key: what the history's entry is known by.
        """
        if self._replying and not self._asked and not self.options.interrupt_response:
            self._history.add_user(text, key)
            self._owed = self.options.create_response
        elif self.options.create_response or self._asked:
            self._answer(text, key)
        else:
            self._history.add_user(text, key)
            self._floor.agent_done()

    def end_empty_turn(self) -> None:
        """Answer what was asked for or is owed, where the user's turn came to nothing."""
        if self._asked:
            self._answer(None)
        else:
            self.answer_owed()

    def answer_owed(self) -> None:
        """Answer what was said during a reply; who speaks again at this moment is answered afterwards."""
        if self._owed and not self._replying and self._floor.floor is not Floor.USER:
            self.respond()

    def respond(self, asked: ReplyRequest | None = None) -> None:
        """Reply to the history, or to the user's turn where there is one: nobody is talked over."""
        asked = asked or ReplyRequest()
        if not asked.remembered:
            turn = self._turn(None, asked, None)
            self._asides.start(turn, self._messages(turn, None, asked))
            return
        talking = self._floor.floor is Floor.USER and not self._floor.manual
        ending = self._floor.pause is not None and self._floor.floor is not Floor.OVERLAP
        if (talking and self.options.interrupt_response) or ending:
            self._asked = asked
            return
        self._cancel(superseded=True)
        self._commit(self._start(None, asked))

    def prompt(self, cue: str) -> None:
        """Reply to a cue that stands where the user's words would, and is not remembered."""
        self._commit(self._start(None, cue=cue))

    @property
    def idle(self) -> bool:
        """Tell whether there is no reply, and none is to come."""
        return self.turn is None and not self._asked and not self._owed

    def _answer(self, text: str | None, key: Key | None = None) -> None:
        asked, self._asked = self._asked or ReplyRequest(), None
        if self.turn and text and asked == ReplyRequest(tag=asked.tag) and self._guessed(text):
            self.turn.tag = asked.tag
            self._commit(self.turn, key)
        else:
            self._cancel(superseded=True)
            self._commit(self._start(text, asked), key)

    @property
    def _replying(self) -> bool:
        return self.turn is not None and self.turn.committed

    # --- somebody speaks over it, or wants it stopped ---------------------------------------------------

    def pause(self) -> None:
        """Hold the reply while it is in doubt whether it is interrupted."""
        if self.turn is None or self.turn.made:
            self._floor.agent_ends()
        if self.turn is not None:
            self.turn.pause()

    def resume(self) -> None:
        """Let the reply go on with the sample at which it stopped: it was no interruption."""
        if self.turn is not None and not self.held:
            self.turn.resume()
            counts = self.turn.trace.counts
            counts["false_interruptions"] = counts.get("false_interruptions", 0) + 1
            if self.turn.trace.budget():  # or it will be told with its first audio
                self._emit(TurnTraced(self.turn.trace))

    def overtake(self) -> None:
        """Give way to the user's own words, if the reply may be interrupted."""
        self.speculation.begin_turn()
        if self.options.interrupt_response:
            self._cancel(overtaken=True)

    def interrupt(self, aside: int | None = None) -> None:
        """Stop the reply, or the one that was asked for; or one beside the conversation."""
        if aside is not None:
            self._asides.cancel(aside)
            return
        self._asked, self._owed = None, False
        self._cancel()
        self._floor.agent_done()

    def truncate(self, turn: int, seconds: float) -> str | None:
        """Settle a reply with the ``seconds`` of it that were played; return their text. It falls silent."""
        if self.turn and self.turn.id == turn and self.turn.committed:
            self._cancel()  # who knows how much was played has stopped playing
            self._floor.agent_done()
        heard = None
        for settled in self._settled:
            if settled.id == turn:
                heard = settled.heard(seconds)
                self._settle(settled, seconds, cut=True)
        self.answer_owed()
        return heard

    def close(self) -> None:
        """Cancel everything; what still cleans up is in ``cancelled``."""
        self._cancel()
        self._asides.close()
        if self._warming is not None and not self._warming.done():
            self._see_off(self._warming)
        for task in self.cancelled:
            task.cancel()

    def hold(self, since: float) -> tuple[int, float] | None:
        """Let nothing be heard until ``release``: nobody has been there ``since`` that time.

        Returns which reply sounded last, and how many seconds of it had been heard by then.
        """
        self.held = True
        self._asides.pause()
        if self.turn is not None:
            self.turn.playout.stop(since)
            self.turn.pause()
        last = self.turn if self._replying else next(reversed(self._settled), None)
        return (last.id, last.playout.played(since)) if last else None

    def release(self, unheard: Mapping[int, float]) -> None:
        """Go on; of these replies the last so many seconds are heard only now, one reply after the other.

        One that had ended by the clock sounds once more: it can be interrupted, and until it is heard the
        history does not have it.
        """
        self.held = False
        self._asides.resume()
        now, seconds = asyncio.get_running_loop().time(), 0.0
        ended = [turn for turn in self._settled if turn is not self.turn and turn.id in unheard]
        if self.turn is not None:
            self.turn.resume()
        for turn in [*ended, self.turn] if self.turn else ended:
            turn.playout.sent_again(unheard.get(turn.id, 0.0), now + seconds)
            seconds += unheard.get(turn.id, 0.0)
        if self.echo is not None:
            self.echo.play_again(seconds, now)
        if ended and self.idle and self._floor.floor is Floor.NOBODY:
            for turn in ended:
                self._settle(turn, turn.playout.played(now), cut=True)
            self._floor.agent_speaks()
            self.turn = ended[-1]
            self.turn.task = asyncio.create_task(self._sound_again(ended), name=f"reply-{self.turn.id}-again")

    async def _sound_again(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            await turn.sound_out()
            self._settle(turn, turn.playout.seconds, cut=turn.failed)
        self._end()

    # --- one reply --------------------------------------------------------------------------------------

    def _guessed(self, text: str) -> bool:
        """Tell whether there is an answer to these words that waits for its commit."""
        return bool(
            self.turn and not self.turn.committed and normalise(self.turn.text or "") == normalise(text)
        )

    def _start(self, text: str | None, asked: ReplyRequest | None = None, cue: str | None = None) -> Turn:
        asked = asked or ReplyRequest()
        self.turn = turn = self._turn(text, asked, self.echo)
        turn.trace.marks.update(self.marks if text else {})
        turn.mark("reply_started")
        # What it waits for while its prompt is being read ahead is as urgent as the reply.
        turn.deadline, self._reading = self._reading, Deadline(PARTIAL_SECONDS)
        turn.deadline.slack = GUESS_SECONDS
        turn.brief = self._models.load_shedder.level >= LoadLevel.LENGTH and not turn.tools.functions
        # The prompt is built here, not in the task: a commit in this same step adds the text to the history.
        messages = self._messages(turn, text or cue, asked)
        turn.task = asyncio.create_task(self._run(turn, messages), name=f"reply-{turn.id}")
        return turn

    def _turn(self, text: str | None, asked: ReplyRequest, echo: Echo | None) -> Turn:
        self._turns += 1
        speaks = self.options.speaks if asked.speaks is None else asked.speaks
        tools = self.options.tools if asked.tools is None else asked.tools
        most = self.options.max_tokens if asked.max_tokens is None else asked.max_tokens
        holds, seconds = self.options.holds_audio, self.options.max_reply_s
        turn = Turn(self._turns, text, asked.tag, speaks, tools, holds, echo, most, seconds)
        turn.words = asked.words
        return turn

    def _messages(self, turn: Turn, text: str | None, asked: ReplyRequest) -> list[Message]:
        if asked.words:
            return []
        if asked.prompt is None:
            try:
                return self._history.messages(text, asked.instructions)
            except ProtocolError as error:
                turn.refused = error
                return []
        return prompt(asked.prompt, asked.instructions or self.options.instructions)

    def _commit(self, turn: Turn, key: Key | None = None) -> None:
        self._owed = False
        turn.trace.counts |= self.speculation.commit(turn.guess)
        turn.trace.counts["ladder"] = float(self._models.load_shedder.level)
        if turn.text:
            self._history.add_user(turn.text, key)
        self._history.begin_reply(turn.id)
        self._floor.agent_speaks()
        self._emit(ReplyStarted(turn.id, turn.tag, turn.speaks))
        if self.held or self._floor.floor is Floor.OVERLAP:
            turn.pause()
        turn.commit()

    async def _run(self, turn: Turn, messages: list[Message]) -> None:
        """Run a reply to its end. Nothing of a guess is told, and it may be over before its commit."""
        status = await attempt(turn, self._models, messages, self._out, self._warming)
        if status == "failed" and turn is not self.turn:  # while being cancelled, which that hides
            return
        await turn.wait_committed()
        turn.failed = status == "failed"
        self._settle(turn, turn.playout.seconds, cut=turn.failed)  # before a client can add to it
        for call in turn.calls if status == "completed" else []:
            self._emit(ReplyCalled(turn.id, self._history.add_call(call)))
        self._tell_done(turn, status, turn.playout.seconds)
        await turn.sound_out()  # what was sent is heard, whatever the status
        self._end()

    def _end(self) -> None:
        self.turn = None
        self._floor.agent_done()
        self.answer_owed()

    def _cancel(self, superseded: bool = False, overtaken: bool = False) -> None:
        """Drop the current turn; synchronous, so that the next prompt is built from a settled history.

        superseded: another reply takes its place, which cuts nothing off one that only has to sound out.
        overtaken: the user speaks.
        """
        turn, self.turn = self.turn, None
        if turn is None or turn.task is None:
            return
        turn.overtaken = overtaken
        turn.cancel()
        if turn.guess and not turn.committed:
            self.speculation.drop(turn.tokens)
        self._see_off(turn.task)
        if turn.committed and superseded and turn.done:
            self._settle(turn, turn.playout.seconds, cut=turn.failed)
        elif turn.committed:
            now = asyncio.get_running_loop().time()
            played = turn.playout.played(now)
            if self.echo is not None:
                self.echo.cut(now)
            self._settle(turn, played, cut=not turn.done or played < turn.playout.seconds)
            self._tell_done(turn, "cancelled", played)

    def _see_off(self, task: asyncio.Task[None]) -> None:
        self.cancelled.add(task)
        task.add_done_callback(self.cancelled.discard)

    def _tell_done(self, turn: Turn, status: str, played: float) -> None:
        if not turn.done:
            turn.done = True
            if seconds := turn.trace.making():
                self._models.load_shedder.answered(id(self), seconds, asyncio.get_running_loop().time())
            self._emit(over(turn, self._models.llm, status, played))

    def _settle(self, turn: Turn, played: float, cut: bool) -> None:
        """Put what was heard into the history, again for a reply that is cut after it was told as done."""
        heard = turn.heard(played)
        if turn.overtaken and cut and turn.speaks and played < MERGE_SECONDS:
            heard = ""
        self._history.settle(turn.id, heard, cut)
        self._floor.asked = heard or self._floor.asked
        if turn not in self._settled:
            self._settled.append(turn)

    async def _prefill(self, text: str, deadline: Deadline) -> None:
        current.set(deadline)
        try:
            await self._models.llm.warm(self._history.messages(text))
        except Exception as error:  # only speed is lost: the reply itself will say what is wrong
            log.debug("warming the prompt failed: %s", error)
