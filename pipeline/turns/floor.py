"""Who has the floor: the states, and the transitions that ``Endpointer`` makes.

    floor    event                                                       next     output
    -------  ----------------------------------------------------------  -------  --------------
    NOBODY   speech for ``start_ms``                                     USER     SpeechStarted
    NOBODY   the agent starts to speak                                   AGENT    -
    AGENT    speech for ``start_ms``, the agent does not yield           USER     SpeechStarted
    AGENT    speech for ``notice_ms``, the agent yields                  OVERLAP  OverlapStarted
    AGENT    the agent has finished                                      NOBODY   -
    OVERLAP  the sound is harmless so far                                OVERLAP  OverlapEnded
    OVERLAP  it is not any more                                          OVERLAP  OverlapStarted
    OVERLAP  a noise or a backchannel (see interruption.py)              AGENT    OverlapEnded
    OVERLAP  the same, and the agent has finished meanwhile              NOBODY   OverlapEnded
    OVERLAP  either of them, and it was harmless so far                           BackchannelEnded
    OVERLAP  an interruption that goes on                                USER     SpeechStarted
    OVERLAP  an interruption that has ended                              PAUSE    SpeechStarted, PauseStarted
    USER     silence for ``pause_ms``, or speech for ``max_turn_ms``     PAUSE    PauseStarted
    PAUSE    the final transcript has words                              PAUSE    Transcribed
    PAUSE    the words sound whole, or the turn may end in ``EAGER_MS``  PAUSE    EagerEndOfTurn
    PAUSE    speech for ``resume_ms``                                    USER     TurnResumed
    PAUSE    silence for ``min_wait_ms``, the transcript is final,       AGENT    EndOfTurn
             and the end is ``patience`` times as likely as more
    PAUSE    silence for ``max_wait_ms``, the transcript is final        AGENT    EndOfTurn
    PAUSE    silence for ``max_wait_ms``, and there are no words, or     NOBODY   NothingSaid
             only vocal tics such as "um"
    PAUSE    the same for ``EMPTY_MS``, if the turn stopped the agent    NOBODY   NothingSaid
    PAUSE    from now on the client ends turns                           USER     TurnResumed

The client can end the user's turn: that starts a pause, and the turn ends once its transcript is final. It
can drop the turn: USER and PAUSE become NOBODY without an event, and an overlap ends as a noise.
"""

from __future__ import annotations

from enum import Enum, auto


class Floor(Enum):
    """The states of the floor: who is speaking, or about to."""

    NOBODY = auto()
    USER = auto()
    PAUSE = auto()
    AGENT = auto()
    OVERLAP = auto()
