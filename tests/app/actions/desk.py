"""The agent in docs/guides/call-actions.md."""

from rejoinder import Agent, Call, ToolError, Untold

SALES = "+49301234567"
agent = Agent[None, None]("You answer for Mario's.")


@agent.tool
async def connect_sales(call: Call, reason: str) -> str:
    """Put the caller through to sales. Say so in the same answer."""
    try:
        await call.transfer(SALES, briefing=f"{call.info.caller} asks about {reason}.")
    except ToolError:
        await call.play("all_busy.wav", words="All our people are busy. We will call you back.")
        call.hang_up("nobody in sales")
    return Untold("done")
