"""A language model that judges a call where code cannot, such as whether the agent was polite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rejoinder.agent.simulate.virtual_clock import in_real_time
from rejoinder.pipeline import Llm, Message, ModelError

JUDGE_INSTRUCTIONS = (
    "You judge telephone calls between a caller (user) and a voice agent (assistant). You get the transcript "
    "of one call, with the tools that the agent called, and one question about it. Judge only what the "
    "transcript shows. A dash at the end of words means that the caller interrupted there. Answer with one "
    "line: YES or NO, a colon, and the reason in at most 30 words."
)
"""The system prompt of a judge."""
MAX_VERDICT = 2_000
"""Most characters of an answer that are read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question about a call. It is true where the answer is yes."""

    yes: bool
    reason: str

    def __bool__(self) -> bool:
        """Return whether the answer is yes."""
        return self.yes


async def judge(llm: Llm, transcript: Sequence[Message], question: str) -> Verdict:
    """Ask a language model a question about a call that has the answer yes or no.

    transcript: in OpenAI's chat format. Raises ModelError, also if the answer begins with neither YES nor NO.
    Cancelling cancels the request.
    """
    asked = f"Transcript:\n{as_text(transcript)}\n\nQuestion: {question}"
    messages: list[Message] = [
        {"role": "system", "content": JUDGE_INSTRUCTIONS},
        {"role": "user", "content": asked},
    ]
    answer = ""
    with in_real_time():
        async with aclosing(llm.reply(messages)) as tokens:
            async for token in tokens:
                answer += token
                if len(answer) >= MAX_VERDICT:
                    break
    said = answer.rpartition("</think>")[2].strip()  # a reasoning model thinks first
    word = said[:3].strip(" :.,").upper()
    if word not in ("YES", "NO"):
        raise ModelError("judge", f"the answer begins with neither YES nor NO: {said[:200]!r}")
    return Verdict(word == "YES", said[len(word) :].lstrip(" :.,*-") or word)


def as_text(transcript: Sequence[Message]) -> str:
    """Return a transcript with one line per message and per call of a tool."""
    lines: list[str] = []
    for message in transcript:
        if message["content"]:
            lines.append(f"{message['role']}: {message['content']}")
        for call in message.get("tool_calls", ()):
            lines.append(f"(calls {call['function']['name']} with {call['function']['arguments']})")
    return "\n".join(lines)
