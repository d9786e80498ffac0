"""The channel: bounded, closable, and atomic under cancel."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline.channel import Channel, Closed


async def rest(channel: Channel[int]) -> list[int]:
    """Close the channel and receive what is left."""
    channel.close()
    return [item async for item in channel]


async def turns(count: int) -> None:
    """Let other tasks run for this many iterations of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [0, -1])
def test_a_channel_needs_a_size(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Channel[int](size)


def test_sending_waits_for_room() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(2)

        async def produce() -> None:
            for item in range(5):
                await channel.send(item)
            channel.close()

        producing = asyncio.create_task(produce())
        await asyncio.sleep(1.0)
        assert len(channel) == 2
        received = []
        async for item in channel:
            received.append(item)
            await asyncio.sleep(1.0)
        assert received == [0, 1, 2, 3, 4]
        assert channel.peak == 2
        assert channel.waited == 3.0  # each second of the receiver holds one item up
        await producing

    virtual_clock.run(main())


def test_receiving_waits_for_an_item() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        receiving = asyncio.create_task(channel.receive())
        await asyncio.sleep(1.0)
        assert not receiving.done()
        assert channel.send_nowait(7)
        assert await receiving == 7
        assert channel.waited == 0.0

    virtual_clock.run(main())


def test_leave_keeps_places_free() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(4)
        for item in range(2):
            await channel.send(item, leave=2)
        waiting = asyncio.create_task(channel.send(99, leave=2))
        await turns(3)
        assert not waiting.done()
        assert channel.send_nowait(2)
        assert channel.send_nowait(3)
        assert not channel.send_nowait(4)
        assert [await channel.receive() for _ in range(3)] == [0, 1, 2]
        await waiting
        assert await rest(channel) == [3, 99]

    virtual_clock.run(main())


def test_a_sender_who_leaves_places_does_not_block_the_channel() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(2)
        await channel.send(0)
        await channel.send(1)
        modest = asyncio.create_task(channel.send(2, leave=1))
        await turns(2)
        other = asyncio.create_task(channel.send(3))
        await turns(2)
        received = [await channel.receive() for _ in range(4)]
        assert received[:2] == [0, 1]
        assert sorted(received[2:]) == [2, 3]
        await modest
        await other

    virtual_clock.run(main())


def test_what_waits_can_be_taken_at_once_and_makes_room() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(3)
        assert channel.receive_nowait(2) == []
        for item in range(3):
            await channel.send(item)
        waiting = [asyncio.create_task(channel.send(item)) for item in (3, 4)]
        await turns(2)
        assert channel.receive_nowait(2) == [0, 1]
        await asyncio.gather(*waiting)
        channel.close()
        assert channel.receive_nowait(9) == [2, 3, 4]

    virtual_clock.run(main())


def test_closing_delivers_what_is_inside() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(4, "words")
        await channel.send(1)
        channel.close()
        channel.close()
        assert channel.closed
        with pytest.raises(Closed):
            channel.send_nowait(2)
        with pytest.raises(Closed):
            await channel.send(2)
        assert await channel.receive() == 1
        with pytest.raises(Closed):
            await channel.receive()
        assert [item async for item in channel] == []

    virtual_clock.run(main())


def test_closing_wakes_all_senders_and_receivers() -> None:
    async def main() -> None:
        full: Channel[int] = Channel(1)
        await full.send(1)
        senders = [asyncio.create_task(full.send(item)) for item in (2, 3)]
        empty: Channel[int] = Channel(1)
        receiving = asyncio.create_task(empty.receive())
        await turns(2)
        full.close()
        empty.close()
        answers = await asyncio.gather(*senders, receiving, return_exceptions=True)
        assert all(isinstance(answer, Closed) for answer in answers)
        assert await rest(full) == [1]

    virtual_clock.run(main())


@pytest.mark.parametrize("rounds", range(6))
@pytest.mark.parametrize("sent_after", range(6))
def test_cancelling_the_receiver_loses_nothing(sent_after: int, rounds: int) -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        received: list[int] = []

        async def receive() -> None:
            received.append(await channel.receive())

        receiving = asyncio.create_task(receive())

        async def send() -> None:
            await turns(sent_after)
            await channel.send(7)

        sending = asyncio.create_task(send())
        await turns(rounds)
        receiving.cancel()
        await asyncio.wait([receiving, sending])
        assert received + await rest(channel) == [7]

    virtual_clock.run(main())


@pytest.mark.parametrize("rounds", range(6))
@pytest.mark.parametrize("received_after", range(6))
def test_cancelling_a_sender_sends_or_does_not(received_after: int, rounds: int) -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        await channel.send(0)
        sending = asyncio.create_task(channel.send(7))

        async def receive() -> int:
            await turns(received_after)
            return await channel.receive()

        receiving = asyncio.create_task(receive())
        await turns(rounds)
        sending.cancel()
        await asyncio.wait([sending, receiving])
        left = await rest(channel)
        assert receiving.result() == 0
        assert left == ([] if sending.cancelled() else [7])

    virtual_clock.run(main())


def test_a_woken_sender_who_is_cancelled_wakes_the_next() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        await channel.send(0)
        first, second = (asyncio.create_task(channel.send(item)) for item in (1, 2))
        await turns(2)
        assert await channel.receive() == 0  # wakes the first sender
        first.cancel()
        async with asyncio.timeout(1.0):
            assert await channel.receive() == 2
        await asyncio.wait([first, second])
        assert first.cancelled()

    virtual_clock.run(main())


def test_cancelled_waits_leave_nothing_behind() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        for full in (False, True):
            for _ in range(3):
                waiting = asyncio.ensure_future(channel.send(1) if full else channel.receive())
                await turns(2)
                waiting.cancel()
                await asyncio.wait([waiting])
            channel.send_nowait(0)
        assert (len(channel._readers), len(channel._writers)) == (0, 0)

    virtual_clock.run(main())


def test_a_woken_receiver_who_is_cancelled_wakes_the_next() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(1)
        first, second = (asyncio.create_task(channel.receive()) for _ in range(2))
        await turns(2)
        channel.send_nowait(7)
        first.cancel()
        async with asyncio.timeout(1.0):
            assert await second == 7

    virtual_clock.run(main())


@settings(max_examples=60)
@given(
    size=st.integers(1, 3),
    senders=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=4),
    cancels=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=4),
    pauses=st.lists(st.integers(0, 3), max_size=12),
)
def test_several_senders_under_any_cancels(
    size: int, senders: list[list[int]], cancels: list[tuple[int, int]], pauses: list[int]
) -> None:
    """Each sender's items arrive in order and once, up to where it was cancelled."""

    async def main() -> None:
        channel: Channel[tuple[int, int]] = Channel(size)
        sent: list[list[tuple[int, int]]] = [[] for _ in senders]
        received: list[tuple[int, int]] = []

        async def send(number: int, delays: list[int]) -> None:
            for item, delay in enumerate(delays):
                await turns(delay)
                await channel.send((number, item))
                sent[number].append((number, item))

        async def receive() -> None:
            async for item in channel:
                received.append(item)
                await turns(pauses[len(received) % len(pauses)] if pauses else 0)

        tasks = [asyncio.create_task(send(number, delays)) for number, delays in enumerate(senders)]
        receiving = asyncio.create_task(receive())
        for rounds, victim in cancels:
            await turns(rounds)
            if victim < len(tasks):
                tasks[victim].cancel()
            else:
                receiving.cancel()  # another receiver takes over
                await asyncio.wait([receiving])
                receiving = asyncio.create_task(receive())
        await asyncio.wait(tasks)
        channel.close()
        await receiving
        assert channel.peak <= size
        for number in range(len(senders)):
            assert [item for item in received if item[0] == number] == sent[number]

    virtual_clock.run(main())
