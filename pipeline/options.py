"""What a conversation is made with: its models, and what may differ from one session to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.history import PROMPT_CHARACTERS
from rejoinder.pipeline.interfaces import NO_TOOLS, Llm, Message, Stt, Tools, Tts, TurnModel, Vad
from rejoinder.pipeline.prompt import Entry

IDLE_CUE = "(The caller has said nothing for a while. Ask in a few words whether they are still there.)"
INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short spoken sentences."


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a conversation. Their weights are shared by all sessions.

    ladder: what is left out while there is more to do than they can do in time. Raises ModelError for a model
    that lacks a method of its protocol in ``interfaces``, or has it in another shape.
    """

    vad: Vad
    stt: Stt
    llm: Llm
    tts: Tts
    turn: TurnModel | None = None
    load_shedder: LoadShedder = field(default_factory=LoadShedder)

    def __post_init__(self) -> None:
        for role in ("vad", "stt", "llm", "tts"):
            check_fits(role, getattr(self, role))
        if self.turn is not None:
            check_fits("turn", self.turn)


@dataclass(frozen=True, slots=True)
class Endpointing:
    """How turns begin and end; all times in milliseconds.

    threshold, release: speech probability that starts speech, or takes it up again after a pause, and below
        which it may have stopped. A pause is noticed sooner with a release above the threshold; no turn ends
        while the probability is above the threshold.
    start_ms: speech that takes the floor. resume_ms: speech that ends a pause.
    notice_ms: speech at which the agent falls silent, for the time being.
    assertiveness: how firmly the agent keeps the floor, from 0 (any speech ends its reply) to 1.
    padding_ms: audio before the start that belongs to the turn.
    pause_ms: silence after which the transcript is made final and an answer may start, unheard.
    patience: how many times as likely as more speech the end must be for the turn to be over, or, from
        ``turn_end.long_ms`` on, not four times less likely; ``turn_end`` says how likely it is. Whoever
        interrupts an answer in its first second was cut off, and gets three times as much for the next few
        turns, up to 8, but is waited for no longer than 0.9 s for that, unless more is likely.
    min_wait_ms, max_wait_ms: silence before which no turn is over however likely, and after which it is over
        however unlikely. Equal values make it plain silence detection.
    max_turn_ms: a turn longer than this is ended for the speaker.
    """

    threshold: float = 0.5
    release: float = 0.7
    start_ms: int = 96
    notice_ms: int = 64
    resume_ms: int = 64
    padding_ms: int = 300
    pause_ms: int = 32
    patience: float = 4.0
    min_wait_ms: int = 150
    max_wait_ms: int = 2_200
    max_turn_ms: int = 60_000
    assertiveness: float = 0.5

    def __post_init__(self) -> None:
        if not (0.0 <= self.release <= 1.0 and 0.0 <= self.threshold <= 1.0):
            raise ValueError("need release and threshold from 0 to 1")
        if not 0.0 <= self.assertiveness <= 1.0:
            raise ValueError("need assertiveness from 0 to 1")
        if not self.pause_ms <= self.min_wait_ms <= self.max_wait_ms:
            raise ValueError("need pause_ms <= min_wait_ms <= max_wait_ms")
        if not self.patience > 0.0:
            raise ValueError("need a patience above 0")


@dataclass(slots=True)
class Options:
    """What may differ from one session to the next.

    greeting: what the agent says when the session begins, word for word; empty for nothing.
    examples: an imagined beginning of the conversation, which shows a small model how to answer.
    prompt_characters: how much of the conversation is in a prompt at most, beside these two. retention: the
        share of that which is kept where there is more; None: nothing is forgotten, and no reply is made.
    detect_turns: False means that the client says where turns begin and end.
    create_response: answer a turn when it ends.
    interrupt_response: speech stops the agent; False means that it finishes first, and then answers.
    speaks: False for replies that are written only. tools: what they may call; see ``ToolLlm``.
    max_tokens: tokens of the language model after which a reply ends, whole or not; none has more than
        ``utterance.MAX_TOKENS``, which is also what 0 stands for. Thoughts do not count.
    max_reply_s: seconds of speech after which a reply ends with its clause, 0 for no such end.
    holds_audio: the client holds what it has from OverlapStarted on, until OverlapEnded lets it play on or
        SpeechStarted makes it void. False means that it plays on and falls silent when nothing more comes.
    echo_gate: take the agent's own voice out of what the microphone of an open loudspeaker hears. Until it
        knows that there is no echo, it doubts whoever speaks over the agent, so it is for who needs it.
    speculate: start answers at the first sign of an end; False where those thrown away would be billed.
    max_guesses: how often in one turn, at most; those of a turn with many pauses cost tokens.
    idle_s: seconds of nobody speaking after which the agent says something, 0 for never.
    idle_prompts: how often it does so before the user has spoken again. idle_cue: what stands in the prompt
        then as the user's words; the history does not get it.
    max_call_s: seconds after which the call ends as soon as nobody speaks, 0 for never.
    """

    instructions: str = INSTRUCTIONS
    greeting: str = ""
    examples: Sequence[Message] = ()
    prompt_characters: int = PROMPT_CHARACTERS
    retention: float | None = 0.5
    endpointing: Endpointing = field(default_factory=Endpointing)
    detect_turns: bool = True
    create_response: bool = True
    interrupt_response: bool = True
    speaks: bool = True
    tools: Tools = NO_TOOLS
    max_tokens: int = 0
    max_reply_s: float = 120.0
    holds_audio: bool = False
    echo_gate: bool = False
    speculate: bool = True
    max_guesses: int = 12
    idle_s: float = 0.0
    idle_prompts: int = 2
    idle_cue: str = IDLE_CUE
    max_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A reply that a client asks for, and what is to be different about it; None is as in the session.

    instructions: what the agent is told. prompt: what stands in the place of the history.
    words: what the agent says, word for word; the language model is not asked then.
    speaks, tools, max_tokens: as in ``Options``.
    remembered: False for a reply beside the conversation: nobody's turn, and no part of the history.
    tag: given back with its ReplyStarted; 0 is what nobody asked for.
    """

    instructions: str | None = None
    prompt: Sequence[Entry] | None = None
    speaks: bool | None = None
    tools: Tools | None = None
    remembered: bool = True
    tag: int = 0
    max_tokens: int | None = None
    words: str = ""
