"""Finds out who answered one call, holds the agent's words until then, and leaves messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from rejoinder.agent.app.answering.beep import Beep, BeepDetector
from rejoinder.agent.app.answering.message_start import MessageStart
from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.app.answering.who_answered import LIMIT_S, CallAnswer, WhoAnswered
from rejoinder.pipeline import (
    RATE,
    BackchannelEnded,
    EndOfTurn,
    Event,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PauseStarted,
    ReplyRequest,
    Session,
    SpeechStarted,
    Transcribed,
    TurnResumed,
    to_float,
)

log = logging.getLogger(__name__)

HOLD_S = 6.0
"""How long the agent waits to speak while it is unknown who answered, by default, in seconds."""
MESSAGE_WAIT_S = 60.0
"""Longest wait for the end of a machine's greeting, in seconds; mailboxes allow 15 to 60."""
PLAYED_CHECK_S = 0.05
"""Interval between two checks whether a message was heard to its end, in seconds."""
STAYS_SILENT = (AnsweredBy.VOICEMAIL, AnsweredBy.UNAVAILABLE)
"""Answers after which the agent does not speak first."""


class Answering:
    """Who answers one call. It begins with ``connect``.

    detect: whether to find out; False only leaves messages. hold_s: seconds for which the agent waits to
    speak while that is unknown; 0 to speak at once.
    """

    def __init__(self, detect: bool = True, hold_s: float = HOLD_S) -> None:
        self._over = not detect
        self._holding = detect and hold_s > 0
        self._hold_s = hold_s
        self._who = WhoAnswered()
        self._beeps = BeepDetector()
        self._last_beep: Beep | None = None
        self._silent_since: int | None = 0
        self._spoke = False
        self._message: MessageStart | None = None
        self._changed = asyncio.Event()
        self._begin = asyncio.Event()
        self._id = ""
        self._answered = asyncio.Event()
        self._new: CallAnswer | None = None
        self._session: Session | None = None
        self._configured: Callable[[], None] = lambda: None

    @property
    def answer(self) -> CallAnswer | None:
        """Who answered, None while it is unknown."""
        return self._who.answer

    @property
    def holding(self) -> bool:
        """Whether the agent waits to speak until it is known who answered."""
        return self._holding

    async def wait(self) -> CallAnswer:
        """Wait until it is certain, or stays unknown, who answered. Cancelling changes nothing."""
        await self._answered.wait()
        assert self._who.answer
        return self._who.answer

    def adapt(self, options: Options) -> Options:
        """Return the options of the session: no reply by itself while the agent waits to speak."""
        if self._message is not None:
            return replace(options, create_response=False, interrupt_response=False, idle_s=0.0)
        if self._holding:
            return replace(options, greeting="", create_response=False, idle_s=0.0)
        return options

    def connect(self, session: Session, configured: Callable[[], None], id: str = "") -> None:
        """Begin to listen to a session.

        configured: called when ``adapt`` gives other options. id: the call's, for the log.
        """
        self._session, self._configured, self._id = session, configured, id
        self._listen(session)

    def _listen(self, session: Session) -> None:
        if session.tap is None:
            self._beeps = BeepDetector(session.received)
            session.tap = self._hear

    async def run(self, greeting: str, hooks: Callable[[CallAnswer], Awaitable[None]]) -> None:
        """Run the hooks when it is certain who answered, and let the agent speak; return when all is decided.

        greeting: the agent's first words, "" for none. Cancelling leaves the agent silent if it was.
        """
        if self._over:
            return
        if self._holding:
            try:
                async with asyncio.timeout(self._hold_s):
                    await self._answered.wait()
            except TimeoutError:
                self._release(greeting)
        while await self._changes():
            answer, self._new = self._new, None
            if answer:
                await self._act(answer, greeting, hooks)
        if self._who.answer is None:
            await self._act(self._took(self._who.give_up(self._now)), greeting, hooks)
        self._over = True
        if self._session:
            self._rest(self._session)

    async def _changes(self) -> bool:
        """Wait until there is a new answer; return whether there may be one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * LIMIT_S):  # a line may stop sending audio
                while not self._over and self._new is None:
                    await self._changed.wait()
                    self._changed.clear()
        return self._new is not None

    def _rest(self, session: Session) -> None:
        """Stop listening to the audio if nothing needs it."""
        if self._over and self._message is None:
            session.tap = None

    async def _act(
        self, answer: CallAnswer, greeting: str, hooks: Callable[[CallAnswer], Awaitable[None]]
    ) -> None:
        if self._session:
            self._session.floor.caller.forget()  # the level may be that of a machine before the person
        if answer.by in STAYS_SILENT:
            await hooks(answer)
            self._release("", speaks=False)
        else:
            self._release("" if answer.by is AnsweredBy.IVR else greeting)
            await hooks(answer)

    def _release(self, greeting: str, speaks: bool = True) -> None:
        if not self._holding:
            return
        self._holding = False
        self._configured()
        assert self._session
        if speaks and (greeting or self._spoke):
            self._session.respond(ReplyRequest(words=greeting) if greeting else None)

    async def leave_message(self, words: str) -> bool:
        """Speak exactly these words after the machine's beep; return whether there was one.

        Without a beep they begin ``NO_BEEP_S`` after the greeting's last word, and again if the beep comes
        then. The caller's side does not interrupt them. Returns once they have played. Cancelling stops the
        wait, not words that play. Raises RuntimeError while another message is left.
        """
        session = self._session
        assert session, "connect first"
        if self._message is not None:
            raise RuntimeError("a message is being left already: wait until it has played")
        self._listen(session)
        self._message = message = MessageStart(session.received, self._last_beep, self._silent_since)
        self._configured()
        try:
            if not await self._begins(MESSAGE_WAIT_S):
                log.warning("call %s: the greeting did not end within %g s", self._id, MESSAGE_WAIT_S)
            self._say(session, words)
            while session.reply is not None:
                if await self._begins(PLAYED_CHECK_S):
                    self._say(session, words)
        finally:
            self._message = None
            self._configured()
            self._rest(session)
        return message.by_beep

    async def _begins(self, seconds: float) -> bool:
        """Wait for the time to begin the message, at most some seconds; return whether it came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._begin.wait()
        began = self._begin.is_set()
        self._begin.clear()
        return began

    def _say(self, session: Session, words: str) -> None:
        session.clear_audio()  # otherwise the words would wait for the end of the machine's turn
        session.respond(ReplyRequest(words=words))

    # --- what is heard ----------------------------------------------------------------------------------

    def take(self, happened: Event) -> None:
        """Take an event of the session."""
        match happened:
            case SpeechStarted(at) | OverlapStarted(at):
                self._speech(at)
            case TurnResumed():
                self._speech(self._now)
            case PauseStarted(at):
                self._pause(at)
            case PartialTranscript(_, agreed) if agreed:
                self._who.words(agreed, final=False)
            case Transcribed(text):
                self._who.words(text, final=True)
            case EndOfTurn(text):
                self._pause(self._now)
                self._who.turn_over(text)
            case NothingSaid():
                self._pause(self._now)
                self._who.turn_over("")
            case OverlapEnded(text, is_over=True) | BackchannelEnded(text):
                self._pause(self._now)
                self._who.turn_over(text)

    @property
    def _now(self) -> int:
        """End of the audio that voice activity detection has judged: speech may have begun behind it."""
        return self._session.floor.now if self._session else 0

    def _speech(self, at: int) -> None:
        self._silent_since, self._spoke = None, True
        self._who.speech(at)
        if self._message:
            self._message.speech()

    def _pause(self, at: int) -> None:
        self._silent_since = at if self._silent_since is None else self._silent_since
        self._who.pause(at)
        if self._message:
            self._message.pause(self._silent_since)

    def _hear(self, pcm: bytes) -> None:
        for beep in self._beeps.feed(to_float(pcm)):
            log.info("call %s: a beep of %.0f Hz for %.2f s", self._id, beep.hz, beep.seconds)
            self._last_beep = beep
            self._who.beep(beep)
            if self._message:
                self._message.beep(beep)
        now = self._now
        if self._message and self._message.due(now):
            self._begin.set()
        if not self._over and (answer := self._who.heard(now)):
            self._new = self._took(answer)
            self._changed.set()
        elif not self._over and now > LIMIT_S * RATE:
            self._over = True
            self._changed.set()

    def _took(self, answer: CallAnswer) -> CallAnswer:
        log.info(
            "call %s: answered by %s after %.1f s: %s", self._id, answer.by, answer.seconds, answer.reason
        )
        self._answered.set()
        return answer
