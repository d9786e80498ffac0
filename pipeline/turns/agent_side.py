"""The agent's side of the floor: whether it speaks, and which of its words are heard."""

from __future__ import annotations

from rejoinder.pipeline.turns.interruption import is_echo

ECHO_WORDS = 5
"""Fewest of the agent's last words that count as its echo; fewer may be an answer: "tomorrow at ten"."""


class AgentSide:
    """What the floor knows of the agent. The floor reads it to decide.

    The replies record in it when the agent starts, nears its end and finishes, and what was heard of it:
    while the user has no turn, that changes the floor. The ``Endpointer`` records that an overlap begins, and
    that a turn or an overlap ends; ``hear`` records what the microphone may pick up.

    has_floor: whether the agent has the floor while the user has no turn.
    yields: whether speech may stop what the agent says, as far as that is up to the reply.
    is_finishing: whether the agent is at its last words, so that "yeah" over them is an answer.
    asked: the last words that the user heard. After a request to spell something, one letter is no
        whole answer.
    is_audible: whether the microphone may pick up the agent.
    echo_learnt: whether the echo path from the agent to the microphone is learnt.
    """

    def __init__(self) -> None:
        self.has_floor = self.is_finishing = False
        self.yields = True
        self.asked = ""
        self.echo_learnt = True
        self._echo_words = ""

    def take_floor(self, takes: bool) -> None:
        """Record whether the agent has the floor once the user's turn, or a sound over the agent, is over."""
        self.has_floor = takes

    def started(self, yields: bool = True) -> None:
        """Record that the agent starts to speak: it has the floor while the user has no turn."""
        self.has_floor, self.is_finishing, self.yields = True, False, yields

    def finishing(self) -> None:
        """Record that the agent is at its last words: words over them may be an answer."""
        self.is_finishing = True

    def finished(self) -> None:
        """Record that the agent has finished."""
        self.has_floor, self.is_finishing, self.yields = False, True, True

    def spoken_over(self) -> None:
        """Record that a sound over the agent begins."""
        self.is_finishing = False

    def was_heard(self, words: str) -> None:
        """Record the last words that the user heard. Empty words change nothing."""
        self.asked = words or self.asked

    def may_echo(self, words: str, learnt: bool) -> None:
        """Record which words the microphone may pick up near the onset of the user's speech.

        words: "" if it picks up none. learnt: whether the echo path is learnt.
        """
        self._echo_words, self.echo_learnt = words, learnt

    @property
    def is_audible(self) -> bool:
        """Whether the microphone may pick up the agent."""
        return self._echo_words != ""

    def is_echo(self, text: str, over_agent: bool) -> bool:
        """Return whether the words are the agent's echo. A short answer may repeat some of its last words.

        over_agent: whether the words are of a sound over the agent.
        """
        return is_echo(text, self._echo_words, 1 if over_agent and not self.is_finishing else ECHO_WORDS)
