"""The inputs of a conversation: its models, and the options of one session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rejoinder.pipeline.budget import CallBudget
from rejoinder.pipeline.caching.answers import AnswerCache
from rejoinder.pipeline.context.summaries import Compress, condensed
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.guarding.guard import Guard
from rejoinder.pipeline.history import RETENTION
from rejoinder.pipeline.interfaces import NO_TOOLS, Llm, Message, Stt, Tools, Tts, TurnModel, Vad
from rejoinder.pipeline.prompt import Entry

IDLE_CUE = "(The caller has said nothing for a while. Ask in a few words whether they are still there.)"
"""The message that asks the language model to speak to a silent caller."""
INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short spoken sentences."
"""The default system prompt."""

Speakers = Literal["one", "many"]
"""Whose speech takes the floor: the caller's, or that of all people at the microphone."""
ContextFunction: TypeAlias = Callable[[str], Awaitable[str]]
"""Takes the user's words, and returns what the language model should know to answer them, "" for nothing.

It runs on partial transcripts, before the turn is over, so it may read and must not change anything.
"""


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a conversation. All sessions share their weights.

    turn: None to decide the end of a turn without a turn model.
    load_shedder: chooses which work to skip under load.
    specs: the spec of each model by role. Answers of models without any are not cached.

    Raises ModelError if a model does not implement its protocol in ``interfaces``.
    """

    vad: Vad
    stt: Stt
    llm: Llm
    tts: Tts
    turn: TurnModel | None = None
    load_shedder: LoadShedder = field(default_factory=LoadShedder)
    specs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role in ("vad", "stt", "llm", "tts"):
            check_fits(role, getattr(self, role))
        if self.turn is not None:
            check_fits("turn", self.turn)


@dataclass(frozen=True, slots=True)
class Endpointing:
    """Settings for the start and the end of turns. Times are in milliseconds.

    The defaults of ``patience``, ``unsure_wait_ms`` and ``max_wait_ms`` are the operating point ``balanced``;
    ``turn_taking`` returns the others.

    threshold: speech probability that starts speech, or resumes it after a pause. A turn does not end while
        the probability is above it.
    release: speech probability below which speech may have stopped. A value above ``threshold`` detects
        pauses sooner.
    start_ms: speech needed to take the floor.
    notice_ms: speech needed to pause the agent's reply; 128 ms more for a client that holds its audio.
    resume_ms: speech needed to end a pause.
    padding_ms: audio before the detected start of speech that belongs to the turn.
    pause_ms: silence after which the transcript becomes final and a reply may start, without being played.
    patience: the turn is over when its end is this many times as likely as more speech (see ``turn_end``).
        A user who interrupts a reply within its first second was cut off: the patience then triples for
        the next turns, up to 64, and ``unsure_wait_ms`` is at least 900.
    min_wait_ms: silence before which no turn ends.
    unsure_wait_ms: silence after which the turn is over unless more speech is four times as likely as the
        end.
    max_wait_ms: silence after which every turn ends. If it equals ``min_wait_ms``, silence alone decides.
    max_turn_ms: a longer turn is ended while the user speaks.
    assertiveness: how firmly the agent keeps the floor, from 0 (any speech stops its reply) to 1.
    speakers: "one" if only the caller counts, and voices far below the caller's level neither take the
        floor nor keep it (see ``turns.caller_voice``); "many" if all voices count.

    Raises ValueError for a value out of range.
    """

    threshold: float = 0.5
    release: float = 0.7
    start_ms: int = 96
    notice_ms: int = 64
    resume_ms: int = 64
    padding_ms: int = 300
    pause_ms: int = 32
    patience: float = 16.0
    min_wait_ms: int = 150
    unsure_wait_ms: int = 800
    max_wait_ms: int = 2_200
    max_turn_ms: int = 60_000
    assertiveness: float = 0.5
    speakers: Speakers = "one"

    def __post_init__(self) -> None:
        if not (0.0 <= self.release <= 1.0 and 0.0 <= self.threshold <= 1.0):
            raise ValueError(
                f"release is {self.release} and threshold is {self.threshold}: both must be from 0 to 1"
            )
        if not 0.0 <= self.assertiveness <= 1.0:
            raise ValueError(f"assertiveness is {self.assertiveness}: it must be from 0 to 1")
        if self.speakers not in ("one", "many"):
            raise ValueError(f'speakers is {self.speakers!r}: it must be "one" or "many"')
        if not self.pause_ms <= self.min_wait_ms <= self.max_wait_ms:
            raise ValueError(
                f"pause_ms is {self.pause_ms}, min_wait_ms is {self.min_wait_ms} and max_wait_ms is "
                f"{self.max_wait_ms}: they must not decrease in this order"
            )
        if not self.patience > 0.0:
            raise ValueError(f"patience is {self.patience}: it must be above 0")
        if not self.unsure_wait_ms > 0:
            raise ValueError(f"unsure_wait_ms is {self.unsure_wait_ms}: it must be above 0")


@dataclass(slots=True)
class Options:
    """The options of one session.

    instructions: the system prompt.
    greeting: the agent's first words, spoken verbatim when the session begins; "" for none.
    examples: an invented start of the conversation, which shows a small model how to answer. It is left out
        while there are tools, because a model that sees answers without calls does not call.
    prompt_tokens: most tokens of the conversation in one prompt, without the instructions and the examples; 0
        for what the model's context leaves, at most 8,000.
    retention: share of these tokens that is kept, beside a summary, when the conversation exceeds them. With
        None the prompt is never shortened, and replies to a longer conversation fail.
    compress: summarises the older part of the conversation before it leaves the prompt, while neither side
        has the floor; it is cancelled when a side takes it. ``condense`` replaces a summary that does not
        come in time. None for no summaries: the older part is dropped. ``retention`` None turns it off, too.
    endpointing: how turns begin and end.
    detect_turns: False if the client says where turns end.
    create_response: whether a reply follows each turn by itself.
    interrupt_response: whether speech stops the agent. With False the agent finishes, then answers.
    speaks: False for replies in text only.
    tools: the tools that replies may call; they need a ``ToolLlm``.
    max_tokens: most tokens of a reply, thoughts not counted; 0 for ``answer_filter.MAX_TOKENS``, which is
        also the upper limit.
    max_reply_s: seconds of speech after which a reply ends with the current clause; 0 for no limit.
    holds_audio: whether the client stops its playback at OverlapStarted. It resumes at OverlapEnded and
        discards the audio at SpeechStarted. With False it plays what it has.
    echo_gate: remove the agent's own voice from the microphone signal, for a client with an open
        loudspeaker. Until it has learnt that there is no echo, interruptions take longer, so turn it on
        only where it is needed.
    speculate: start replies before the turn is surely over. Use False if discarded replies are billed.
    max_guesses: most replies started that way in one turn; each of them costs tokens.
    idle_s: seconds of silence on both sides after which the agent prompts the user; 0 for never.
    idle_prompts: most such prompts in a row while the user stays silent.
    idle_cue: stands for the user's words in the language model's prompt when ``idle_s`` has passed; it does
        not enter the history.
    idle_ends: whether the call ends when the user stays silent for another ``idle_s`` after the last prompt.
    max_call_s: seconds after which the call ends at the next silence; 0 for no limit.
    last_words: said before a call ends for its length or for silence; "" for none.
    context: retrieves what the language model should know for the user's words. It stands in front of these
        words in the prompt, and does not enter the history.
    context_wait_s: most seconds that a reply waits for it.
    apology: spoken if the language model fails before the first clause of a reply; "" for silence.
    cut_apology: spoken in place of the rest if it fails later.
    key: SHA-256 of the API key that the call counts for, "" for none. Rules for language models read it.
    cache: answers that may be used again; None for none. Replies with tools, ``context`` or a guard
        of functions use none.
    guard: what the clauses of a reply must pass before they are heard; None for nothing.
    budget: what the call may use of the language model; None for no limit. Once it is spent, the call ends.
    """

    instructions: str = INSTRUCTIONS
    greeting: str = ""
    examples: Sequence[Message] = ()
    prompt_tokens: int = 0
    retention: float | None = RETENTION
    compress: Compress | None = condensed
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
    idle_ends: bool = False
    max_call_s: float = 0.0
    last_words: str = ""
    context: ContextFunction | None = None
    context_wait_s: float = 0.5
    apology: str = ""
    cut_apology: str = ""
    key: str = ""
    cache: AnswerCache | None = None
    guard: Guard | None = None
    budget: CallBudget | None = None

    @property
    def shown_examples(self) -> Sequence[Message]:
        """The examples of the prompt: none while there are tools."""
        return () if self.tools.functions else self.examples


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A client's request for a reply, with the settings of this one reply; None keeps the session's value.

    instructions: the system prompt.
    prompt: entries that replace the history in the language model's prompt.
    speaks, tools, max_tokens: as in ``Options``.
    remembered: False for an out-of-band reply: it does not take the floor and does not enter the history.
    tag: an identifier that ReplyStarted returns; 0 for a reply without a request.
    cue: stands for the user's words in the prompt, and does not enter the history; "" for none.
    words: text to speak verbatim, without the language model; "" to ask the model.
    is_filler: whether the words only fill a silence: they are heard, and enter no history.
    interruptible: False for a reply that speech does not stop, whatever the session's options say.
    failure: an error with which the reply fails at once, after an apology where there is one; None for none.
    """

    instructions: str | None = None
    prompt: Sequence[Entry] | None = None
    speaks: bool | None = None
    tools: Tools | None = None
    remembered: bool = True
    tag: int = 0
    max_tokens: int | None = None
    cue: str = ""
    words: str = ""
    is_filler: bool = False
    interruptible: bool = True
    failure: ModelError | None = None

    @property
    def asks(self) -> bool:
        """Whether the language model answers the history."""
        return not (self.words or self.cue or self.prompt or self.failure)
